"""Errors of writes name the file and the free space."""

import errno
from pathlib import Path

import pytest

from sleeper.storage import disk
from sleeper.storage.disk import free_bytes, write_error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        OSError("IOError: [errno 28] No space left on device"),
    ],
)
def test_a_full_disk_is_named_with_its_free_space(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: OSError
) -> None:
    monkeypatch.setattr(disk, "free_bytes", lambda _: 12_345)
    text = str(write_error(tmp_path / "x", OSError(*error.args)))
    expected = "No space left on device (disk full, 12,345 bytes free)"
    assert text == f"cannot write {tmp_path / 'x'}: {expected}"


def test_another_failure_has_its_reason(tmp_path: Path) -> None:
    error = OSError(errno.EIO, "Input/output error")
    assert str(write_error(tmp_path, error)) == f"cannot write {tmp_path}: input/output error"


def test_the_free_space_of_a_file_that_does_not_exist_is_that_of_its_disk(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "a" / "b") > 0
