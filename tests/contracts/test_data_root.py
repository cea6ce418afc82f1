"""Contract of `DataRoot`, for a folder and a bucket."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.errors import InvalidRequestError, NotFoundError, UnavailableError
from sleeper.retries import RETRY_VARIABLE
from sleeper.storage.bucket import Bucket
from sleeper.storage.location import DataRoot

MIB = 1024**2


@pytest.fixture(params=["local", "s3", "simulated"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> DataRoot:
    if request.param == "local":
        return DataRoot(tmp_path)
    fixture = "simulated_bucket" if request.param == "simulated" else "data_bucket"
    return DataRoot(request.getfixturevalue(fixture))


def put_object(root: DataRoot, path: str, content: bytes) -> None:
    with root.sink(path) as sink:
        sink.write(content)


def names(root: DataRoot, folder: str = "") -> list[str]:
    return sorted(item.path for item in root.list_objects(folder))


def test_written_objects_are_read(root: DataRoot) -> None:
    put_object(root, "a/b c#1.filter", b"content")
    put_object(root, "a/empty", b"")
    assert root.read("a/b c#1.filter") == b"content"
    assert root.read("a/empty") == b""


WRITES: dict[str, Callable[[DataRoot, str], object]] = {
    "sink": lambda root, path: put_object(root, path, b"x"),
    "local_target": lambda root, path: root.local_target(path, Path("/unused")).__enter__(),
    "replacing": lambda root, path: root.replacing(path).__enter__(),
    "create": lambda root, path: root.create(path, b"x"),
    "put": lambda root, path: root.put(path, b"x"),
    "delete": lambda root, path: root.delete([path]),
    "sync": lambda root, path: root.sync([path]),
    "remove_empty_folders": lambda root, path: root.remove_empty_folders(path),
}
READS: dict[str, Callable[[DataRoot, str], object]] = {
    "url_of": lambda root, path: root.url_of(path),
    "read": lambda root, path: root.read(path),
    "map": lambda root, path: root.map(path),
    "open_ranges": lambda root, path: root.open_ranges(path),
    "stream": lambda root, path: list(root.stream(path)),
    "open": lambda root, path: root.open(path),
    "list_objects": lambda root, path: list(root.list_objects(path)),
    "list_folders": lambda root, path: root.list_folders(path),
}


@pytest.mark.parametrize("method", [*WRITES, *READS])
def test_a_path_that_leaves_the_root_is_refused(
    root: DataRoot, tmp_path: Path, method: str
) -> None:
    if root.buckets and method in ("sync", "remove_empty_folders"):
        pytest.skip("does nothing in a bucket")
    inner = DataRoot(tmp_path / "inner") if not root.buckets else root
    (tmp_path / "x.json").write_text("outside")
    for path in ("../x.json", "a/../../x.json", "..", f"{tmp_path}/x.json", "a\nb", "a\0b"):
        with pytest.raises(InvalidRequestError, match="invalid path"):
            (WRITES | READS)[method](inner, path)
    assert (tmp_path / "x.json").read_text() == "outside"
    assert names(inner) == []


def test_names_with_dots_and_other_letters_are_no_way_out(root: DataRoot) -> None:
    paths = ["..a/b..", "a..b/c", "\u00e9 \u00a0/...", "a b"]
    for path in paths:
        root.put(path, b"content")
    assert names(root) == sorted(paths)


@pytest.mark.parametrize("size", [0, 10, MIB + 1])
def test_a_mapped_object_stays_readable_when_it_is_deleted(root: DataRoot, size: int) -> None:
    content = bytes(range(251)) * (size // 251) + bytes(size % 251)
    put_object(root, "a", content)
    mapped = root.map("a")
    root.delete(["a"])
    assert len(mapped) == size
    assert bytes(mapped) == content
    with pytest.raises(NotFoundError, match=r"object \S+a does not exist"):
        root.map("a")


def test_mapped_objects_keep_no_file_open(root: DataRoot) -> None:
    for number in range(20):
        put_object(root, f"o{number}", bytes([number]) * MIB)
    before = len(os.listdir("/dev/fd"))
    mapped = [root.map(f"o{number}") for number in range(20)]
    assert len(os.listdir("/dev/fd")) < before + 20
    assert [each[-1] for each in mapped] == list(range(20))


def test_an_object_larger_than_a_part_is_complete(root: DataRoot) -> None:
    blocks = [bytes([n]) * (3 * MIB + n) for n in range(20)]
    with root.sink("large") as sink:
        for block in blocks:
            sink.write(block)
        assert sink.tell() == sum(map(len, blocks))
    assert root.read("large") == b"".join(blocks)
    assert [item.bytes for item in root.list_objects("")] == [sum(map(len, blocks))]


def test_an_object_is_read_in_chunks(root: DataRoot) -> None:
    content = bytes(range(256)) * (40 * 1024)
    put_object(root, "a", content)
    put_object(root, "empty", b"")
    chunks = list(root.stream("a"))
    assert len(chunks) > 1
    assert b"".join(chunks) == content
    assert b"".join(root.stream("empty")) == b""
    with pytest.raises(NotFoundError, match=r"object \S+nothing does not exist"):
        list(root.stream("nothing"))


def test_an_existing_name_is_refused_and_keeps_its_content(root: DataRoot) -> None:
    put_object(root, "a", b"first")
    with pytest.raises(UnavailableError, match=r"cannot write .*a\b"):
        put_object(root, "a", b"second")
    assert root.read("a") == b"first"


@pytest.mark.parametrize("size", [3, 40 * MIB], ids=["small", "large"])
def test_an_object_is_replaced_atomically(root: DataRoot, size: int) -> None:
    for content in (b"first", b"x" * size):
        with root.replacing("folder/a") as sink:
            sink.write(content)
            if content != b"first":
                assert root.read("folder/a") == b"first"
    assert root.read("folder/a") == b"x" * size
    assert names(root) == ["folder/a"]


def test_a_small_object_is_put_without_arrow(
    root: DataRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Functions have no Arrow.
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for content in (b"first", b"second"):
        root.put("folder/a", content)
        assert root.read("folder/a") == content
    assert root.create("folder/b", b"first")
    assert not root.create("folder/b", b"second")
    assert names(root) == ["folder/a", "folder/b"]


def test_only_empty_folders_are_removed(tmp_path: Path) -> None:
    root = DataRoot(tmp_path)
    for path in ("a/b/c/x", "a/b/y", "a/d/z", "ab/x"):
        root.put(path, b"")
    root.delete(["a/b/c/x", "a/b/y"])
    root.remove_empty_folders("a")
    assert root.list_folders("a") == ["d"]
    root.delete(["a/d/z"])
    root.remove_empty_folders("a")
    root.remove_empty_folders("a")
    assert root.list_folders("") == ["ab"]


def test_a_failed_replacement_keeps_the_object(root: DataRoot) -> None:
    put_object(root, "a", b"first")
    with pytest.raises(ZeroDivisionError), root.replacing("a") as sink:
        sink.write(b"second" * (1 // 0))
    assert root.read("a") == b"first"
    assert names(root) == ["a"]


def test_missing_tables_are_not_found(root: DataRoot) -> None:
    with pytest.raises(NotFoundError, match=r"object \S+a/b does not exist"):
        root.read("a/b")


def test_a_listing_has_the_objects_of_a_folder_with_sizes(root: DataRoot) -> None:
    for path in ("t/data/x", "t/data/y/z", "t2/data/x", "t/data2"):
        put_object(root, path, path.encode())
    assert names(root, "t/data") == ["t/data/x", "t/data/y/z"]
    assert {item.bytes for item in root.list_objects("t/data/y")} == {10}
    assert names(root, "nothing") == []


def test_deleting_objects_is_idempotent(root: DataRoot) -> None:
    paths = [f"d/{n:04d}" for n in range(30)]
    for path in paths:
        put_object(root, path, b"x")
    root.delete([*paths[1:], "d/never", "d/there"])
    assert names(root, "d") == ["d/0000"]
    root.delete(paths)
    assert names(root) == []
    root.delete([])


def test_arrow_opens_a_parquet_file_whether_or_not_its_size_is_known(root: DataRoot) -> None:
    table = pa.table({"n": list(range(100_000))})
    with root.sink("f.parquet") as sink:
        pq.write_table(table, sink)
    (result,) = root.list_objects("")
    for size in (None, result.bytes):
        with root.open("f.parquet", size) as content:
            assert pq.read_table(content).equals(table)


def test_opening_a_missing_object_is_not_found(root: DataRoot) -> None:
    for size in (None, 100):
        with pytest.raises(FileNotFoundError), root.open("nothing", size) as content:
            content.read()


def test_an_upload_that_fails_leaves_no_object(data_bucket: Bucket) -> None:
    root = DataRoot(data_bucket)
    for size in (10, 40 * MIB):
        with contextlib.suppress(RuntimeError), root.sink("torn") as sink:
            sink.write(b"x" * size)
            raise RuntimeError
    assert names(root) == []


def test_an_unreachable_store_is_unavailable(
    data_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RETRY_VARIABLE, "0.5")
    root = DataRoot(dataclasses.replace(data_bucket, endpoint="http://127.0.0.1:9"))
    with pytest.raises(UnavailableError, match=r"cannot read object s3://\S+/a: "):
        root.read("a")
    with pytest.raises(UnavailableError, match=r"cannot write s3://\S+/a: "):
        put_object(root, "a", b"")


def test_a_refused_credential_is_an_error_without_secrets(data_bucket: Bucket) -> None:
    assert data_bucket.credentials is not None
    wrong = dataclasses.replace(data_bucket.credentials, secret_access_key="wrong-secret")
    root = DataRoot(dataclasses.replace(data_bucket, credentials=wrong))
    with pytest.raises(UnavailableError) as caught:
        root.read("a")
    assert "wrong-secret" not in str(caught.value) + repr(wrong)
