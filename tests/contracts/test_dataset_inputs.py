"""Contract of `DatasetInput`: snapshot tables, stashes and files, in folders and buckets."""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sleeper
from sleeper.adjunct.contents.keys import KeyCodec
from sleeper.adjunct.contents.values import ValueCodec
from sleeper.adjunct.inputs.dataset import DatasetInput
from sleeper.errors import StateMovedOnError
from sleeper.stash.layout import StashFormat
from sleeper.storage.location import DataRoot
from tests.contracts.dataset_sources import (
    DatasetSource,
    FileSource,
    Rows,
    SnapshotSource,
    StashSource,
)
from tests.servers.seaweedfs import S3Server

KINDS = (
    "snapshot",
    "stash-json-folder",
    "stash-parquet-folder",
    "stash-json-s3",
    "files-.parquet-folder",
    "files-.csv-folder",
    "files-.csv.gz-folder",
    "files-.jsonl-folder",
    "files-.parquet-s3",
    "files-.csv-s3",
    "files-.jsonl-s3",
)


@pytest.fixture(params=KINDS)
def source(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DatasetSource]:
    kind, _, rest = request.param.partition("-")
    place = rest.rpartition("-")[2]
    url = str(tmp_path / "datasets")
    if place == "s3":
        url = _use_bucket(request.getfixturevalue("s3_server"), monkeypatch)
    if kind == "files":
        root = _open_root(request, url) if place == "s3" else DataRoot(Path(url))
        yield FileSource(root, url, rest.rpartition("-")[0], tmp_path)
        return
    with sleeper.create_instance(tmp_path / "instance") as instance:
        if kind == "snapshot":
            yield SnapshotSource(instance)
        else:
            format = StashFormat(rest.partition("-")[0])
            yield StashSource(instance, url, format, tmp_path)


def _use_bucket(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.credentials.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.credentials.secret_access_key)
    monkeypatch.setenv("AWS_REGION", server.region)
    return f"s3://table-data/datasets-{os.getpid()}-{uuid.uuid4().hex}"


def _open_root(request: pytest.FixtureRequest, url: str) -> DataRoot:
    server: S3Server = request.getfixturevalue("s3_server")
    return DataRoot(server.bucket("table-data", url.rpartition("/")[2]))


def read(
    source: DatasetInput, dataset: str | None = None, on_open: Callable[[], object] = lambda: None
) -> dict[Any, Any]:
    """Returns the content of a dataset, by default the newest, and checks the order of its keys."""
    name = dataset or source.newest()
    assert name is not None
    pairs: list[tuple[bytes, bytes]] = []
    with source.open(name) as opened:
        assert opened.name == name
        on_open()
        for each in opened.writes:
            assert not each.deleted_ranges
            pairs += zip(each.keys, each.values, strict=True)  # type: ignore[arg-type]
        layout, is_sorted = opened.layout(), opened.is_sorted
    keys = [key for key, _ in pairs]
    assert not is_sorted or keys == sorted(set(keys))
    if layout is None:
        assert not pairs
        return {}
    key_codec, value_codec = KeyCodec("accounts", layout), ValueCodec(layout)
    return {key_codec.decode(key): value_codec.decode(value) for key, value in pairs}


def rows(*ids: int, name: str = "Ann") -> Rows:
    return [{"id": each, "name": f"{name} {each}", "n": each * 10} for each in ids]


def content(found: Rows) -> dict[int, dict[str, Any]]:
    return {row["id"]: {name: row[name] for name in row if name != "id"} for row in found}


def test_there_is_no_dataset_before_the_first(source: DatasetSource) -> None:
    if isinstance(source, FileSource):
        source.begin([])
    assert source.make_input().newest() is None


def test_the_newest_dataset_has_the_published_rows(source: DatasetSource) -> None:
    opened = source.make_input
    first, second = rows(5, -3, 40, 1, 7), rows(7, 2, name="Bob")
    source.publish(first)
    assert read(opened()) == content(first)
    source.publish(second)
    assert read(opened()) == content(second)


def test_an_open_input_sees_each_dataset(source: DatasetSource) -> None:
    source.publish(rows(1))
    opened = source.make_input()
    names = [opened.newest(), opened.newest()]
    assert names[0] == names[1]
    source.publish(rows(1, name="Bob"))
    assert opened.newest() != names[0]
    assert read(opened) == content(rows(1, name="Bob"))


def test_null_values_are_none(source: DatasetSource) -> None:
    source.publish([{"id": 1, "name": None, "n": 3}, {"id": 2, "name": "x", "n": None}])
    expected = {1: {"name": None, "n": 3}, 2: {"name": "x", "n": None}}
    assert read(source.make_input()) == expected


def test_an_empty_dataset_is_one(source: DatasetSource) -> None:
    source.publish(rows(1, 2))
    opened = source.make_input()
    before = opened.newest()
    source.publish([])
    assert opened.newest() not in (None, before)
    assert read(opened) == {}


def test_many_rows_are_in_key_order(source: DatasetSource) -> None:
    many = rows(*((each * 7919) % 20_011 - 10_000 for each in range(20_011)))
    source.publish(many)
    assert read(source.make_input()) == content(many)


def test_a_dataset_without_its_marker_is_not_seen(source: DatasetSource) -> None:
    if isinstance(source, SnapshotSource):
        pytest.skip("a version is published at once")
    source.publish(rows(1))
    opened = source.make_input()
    before = opened.newest()
    source.begin(rows(2))
    # Files are replaced in their place, and a stash is written beside the one before.
    assert opened.newest() == (None if isinstance(source, FileSource) else before)


def test_a_new_field_is_in_the_next_dataset(source: DatasetSource) -> None:
    source.publish(rows(1))
    opened = source.make_input()
    read(opened)
    source.add_field()
    with_city = [{**row, "city": "Rome"} for row in rows(1, 2)]
    source.publish(with_city)
    assert read(opened) == content(with_city)


def test_a_dataset_that_does_not_exist_any_more_has_moved_on(source: DatasetSource) -> None:
    source.publish(rows(1))
    opened = source.make_input()
    before = opened.newest()
    assert before is not None
    if isinstance(source, SnapshotSource):
        source.expire_all_but(rows(2))
    else:
        source.remove()
    with pytest.raises(StateMovedOnError), opened.open(before):
        pass


def test_a_dataset_that_is_removed_while_it_is_read(source: DatasetSource) -> None:
    many = rows(*range(5_000))
    source.publish(many)
    opened = source.make_input()
    before = opened.newest()
    assert before is not None
    if isinstance(source, SnapshotSource):
        # It is held, so that it can be read to its end.
        found = read(opened, before, lambda: source.expire_all_but(rows(2)))
        assert found == content(many)
        return
    with pytest.raises(StateMovedOnError):
        read(opened, before, source.remove)
