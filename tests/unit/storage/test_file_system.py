"""Faults of file systems of fsspec: what is repeated, what is refused, what the errors name."""

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sleeper.errors import InvalidRequestError, NotFoundError, UnavailableError
from sleeper.retries import RETRY_VARIABLE
from sleeper.storage.file_system import FileSystemRoot
from tests.file_systems import SftpLike


@pytest.fixture
def root(tmp_path: Path) -> FileSystemRoot:
    root = FileSystemRoot(f"sftplike://{tmp_path}/stash")
    put(root, "a/f")
    return root


def put(root: FileSystemRoot, path: str) -> None:
    with root.replacing(path) as sink:
        sink.write(b"0123456789")


class Failing:
    """Lets a method fail some times, after it has done its work or half of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str, *errors: Exception) -> None:
        original, self.left, self.calls = getattr(SftpLike, method), list(errors), 0
        monkeypatch.setenv(RETRY_VARIABLE, "0.1")

        def fail(fs: SftpLike, *args: Any, **more: Any) -> Any:
            self.calls += 1
            result = original(fs, *args, **more)
            if self.left:
                raise self.left.pop(0)
            return result

        monkeypatch.setattr(SftpLike, method, fail)


@pytest.mark.parametrize("method", ["put_file", "mv"])
def test_a_write_is_repeated_after_a_lost_connection(
    root: FileSystemRoot, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    failing = Failing(monkeypatch, method, ConnectionResetError("lost"))
    put(root, "a/g")
    assert failing.calls == 2
    assert root.read("a/g") == b"0123456789"
    assert sorted(each.path for each in root.list_objects("")) == ["a/f", "a/g"]


def test_reads_are_repeated_and_resume(
    root: FileSystemRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    Failing(monkeypatch, "cat_file", EOFError(), TimeoutError())
    assert root.read("a/f") == b"0123456789"
    with root.open_ranges("a/f") as file:
        assert file.read(4) == b"0123"
        Failing(monkeypatch, "cat_file", OSError("lost"))
        with pytest.raises(UnavailableError, match=r"cannot read sftplike://.*/a/f: lost"):
            file.read(4)
        assert file.read(4) == b"4567"
        monkeypatch.setattr(SftpLike, "cat_file", lambda *_, **__: b"")
        with pytest.raises(UnavailableError, match="ended early"):
            file.read(4)


@pytest.mark.parametrize(
    ("method", "action", "call"),
    [
        ("put_file", "write", lambda root: put(root, "a/f")),
        ("ls", "list", lambda root: root.list_folders("a")),
        ("rm_file", "delete", lambda root: root.delete(["a/f"])),
        ("cat_file", "read", lambda root: root.read("a/f")),
    ],
)
def test_a_refused_access_names_the_file_and_is_not_repeated(
    root: FileSystemRoot,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    action: str,
    call: Callable[[FileSystemRoot], object],
) -> None:
    failing = Failing(monkeypatch, method, *[PermissionError(13, "Permission denied")] * 9)
    with pytest.raises(UnavailableError, match=rf"cannot {action} sftplike://.*denied"):
        call(root)
    assert failing.calls == 1


def test_an_unsupported_action_is_an_invalid_request(
    root: FileSystemRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    Failing(monkeypatch, "put_file", NotImplementedError())
    with pytest.raises(InvalidRequestError, match="sftplike:// do not support this"):
        put(root, "a/f")


def test_a_file_that_is_deleted_while_it_is_read_is_missing(root: FileSystemRoot) -> None:
    with root.open_ranges("a/f") as file:
        root.delete(["a/f"])
        with pytest.raises(FileNotFoundError, match="a/f does not exist"):
            file.read(1)
    with pytest.raises(NotFoundError):
        root.size("a/f")


def test_unusable_urls_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("memory://x", "simplecache::hdfs://x/y", "zip://x", "://x", "x"):
        with pytest.raises(InvalidRequestError, match="not a lasting file system"):
            FileSystemRoot(url)
    with pytest.raises(InvalidRequestError, match=r"nothing://x cannot be opened: .*not known"):
        FileSystemRoot("nothing://x")
    with pytest.raises(InvalidRequestError, match=r"gs://x needs another package: .*gcsfs"):
        FileSystemRoot("gs://x")
    original = builtins.__import__

    def import_without(name: str, *more: Any, **named: Any) -> Any:
        if name.startswith("fsspec"):
            raise ImportError(name)
        return original(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", import_without)
    with pytest.raises(InvalidRequestError, match=r"needs the package fsspec .*\[hdfs\]"):
        FileSystemRoot("hdfs://x")
