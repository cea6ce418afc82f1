"""Contract of `StashFiles`: folders, buckets, and file systems of fsspec."""

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from sleeper.errors import NotFoundError
from sleeper.stash.files import StashFiles
from sleeper.storage.file_system import FileSystemRoot
from sleeper.storage.location import DataRoot
from tests.file_systems import use_hdfs

MIB = 1024**2


@pytest.fixture(
    params=["folder", "s3", "hdfs", "sftplike", "webhdfslike", "smblike", "objectstore"]
)
def files(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> StashFiles:
    if request.param == "folder":
        return DataRoot(tmp_path)
    if request.param == "s3":
        return DataRoot(request.getfixturevalue("data_bucket"))
    if request.param == "hdfs":
        use_hdfs(tmp_path, monkeypatch)
        return FileSystemRoot("hdfs://namenode:8020/a/stash/")
    return FileSystemRoot(f"{request.param}://{tmp_path}/stash")


def put(files: StashFiles, path: str, content: bytes) -> None:
    with files.replacing(path) as sink:
        sink.write(content)


def names(files: StashFiles, folder: str = "") -> list[str]:
    return sorted(each.path for each in files.list_objects(folder))


def test_files_are_listed_with_their_sizes_and_read(files: StashFiles) -> None:
    assert files.list_folders("") == names(files) == names(files, "b/none") == []
    for path in ("_LATEST", "a/_SUCCESS", "a/t~u/t~u-00-1.json.gz", "a/t/[x]*.json.gz"):
        put(files, path, path.encode())
    put(files, "b/empty", b"")
    assert sorted(files.list_folders("")) == ["a", "b"]
    assert sorted(files.list_folders("a")) == ["t", "t~u"]
    assert names(files, "a/t") == ["a/t/[x]*.json.gz"]
    assert names(files, "a") == ["a/_SUCCESS", "a/t/[x]*.json.gz", "a/t~u/t~u-00-1.json.gz"]
    assert {each.bytes for each in files.list_objects("")} == {0, 7, 10, 16, 22}
    assert (files.read("a/t/[x]*.json.gz"), files.read("b/empty")) == (b"a/t/[x]*.json.gz", b"")
    assert files.url_of("a/b").endswith("/a/b")


def test_a_file_is_read_by_ranges(files: StashFiles) -> None:
    content = bytes(range(256)) * 40
    put(files, "a/f", content)
    with files.open_ranges("a/f") as file:
        assert file.read(100) == content[:100]
        assert file.read(1000) == content[100:1100]
        assert file.seek(-10, 2) == len(content) - 10
        assert (file.read(100), file.read(100)) == (content[-10:], b"")
        assert (file.seek(5), file.tell(), file.read(2)) == (5, 5, content[5:7])
    with pa.PythonFile(files.open_ranges("a/f"), mode="r") as file:
        assert file.read() == content


def test_missing_files_are_not_found(files: StashFiles) -> None:
    put(files, "a/f", b"x")
    with pytest.raises(NotFoundError, match="a/g does not exist"):
        files.read("a/g")
    with pytest.raises(FileNotFoundError), files.open_ranges("a/g") as file:
        file.read(1)
    files.delete(["a/g", "a/f", "none/f"])
    assert names(files) == []


@pytest.mark.parametrize("size", [3, 20 * MIB], ids=["small", "large"])
def test_a_file_is_replaced_whole(files: StashFiles, size: int) -> None:
    put(files, "a/f", b"first")
    with files.replacing("a/f") as sink:
        sink.write(pa.py_buffer(b"x" * size))
        assert sink.tell() == size
        assert (files.read("a/f"), names(files, "b")) == (b"first", [])
    assert files.read("a/f") == b"x" * size
    assert names(files) == ["a/f"]


def test_a_file_whose_writing_fails_keeps_its_content(files: StashFiles) -> None:
    put(files, "a/f", b"first")
    for path in ("a/f", "a/g"):
        with pytest.raises(ZeroDivisionError), files.replacing(path) as sink:
            sink.write(b"x" * MIB + b"x" * (1 // 0))
    assert names(files) == ["a/f"]
    assert files.read("a/f") == b"first"


def test_empty_folders_are_removed(files: StashFiles) -> None:
    for path in ("a/b/c/x", "a/b/y", "a/d/z", "ab/x"):
        put(files, path, b"")
    files.delete(["a/b/c/x", "a/b/y"])
    files.remove_empty_folders("a")
    assert names(files) == ["a/d/z", "ab/x"]
    if isinstance(files, FileSystemRoot) and files.url_of("").startswith("objectstore"):
        return  # the test's store has folders
    if not isinstance(files, DataRoot) or not files.buckets:
        assert files.list_folders("a") == ["d"]
        files.delete(["a/d/z"])
        files.remove_empty_folders("a")
        files.remove_empty_folders("a")
        assert files.list_folders("") == ["ab"]


def test_another_process_opens_the_same_files(files: StashFiles) -> None:
    put(files, "a/f", b"x")
    assert pickle.loads(pickle.dumps(files)).read("a/f") == b"x"
