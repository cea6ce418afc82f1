"""The reserve of disk space of a local instance, which several processes use."""

from pathlib import Path

import pytest

from sleeper.local import reserve
from sleeper.local.reserve import RESERVE_FILE, Reserve


def test_a_collection_does_not_fail_if_another_process_releases_the_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Reserve(tmp_path)
    with kept.released() as is_full:
        assert not is_full
    file = tmp_path / RESERVE_FILE
    bytes_kept = file.stat().st_size
    stat = Path.stat

    def release_then_stat(path: Path, *, follow_symlinks: bool = True) -> object:
        found = stat(path, follow_symlinks=follow_symlinks)
        if path == file:
            file.unlink()
        return found

    monkeypatch.setattr(reserve, "free_bytes", lambda _: 100 * 1024**2)
    monkeypatch.setattr(Path, "stat", release_then_stat)
    with kept.released():
        pass
    monkeypatch.undo()
    with kept.released():
        pass
    assert file.stat().st_size == bytes_kept
