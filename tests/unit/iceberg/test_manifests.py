"""Manifests that replace others: they have the files that manifests written anew would have."""

import io
import random
from collections.abc import Collection, Iterable
from typing import Any

import fastavro
import pytest

from sleeper.iceberg.manifests import (
    Content,
    Entry,
    Manifest,
    Status,
    decode_manifest,
    encode_manifest,
    split_manifest,
)
from sleeper.schema.model import Field, PrimitiveType, Schema
from tests.seeds import choose_seed

SCHEMA = Schema((Field("k", PrimitiveType.LONG, id=1),), (), ())


def make_entry(number: int, name: int, content: Content) -> Entry:
    url = f"file:///data/{name:08d}.parquet"
    is_data = content is Content.DATA
    file: dict[str, Any] = {
        "content": content.value,
        "file_path": url if is_data else f"file:///deletes/{name}-{number}.parquet",
        "file_format": "PARQUET",
        "partition": {},
        "record_count": name % 7 + 1,
        "file_size_in_bytes": 1000,
        "null_value_counts": None,
        "lower_bounds": [{"key": 1, "value": b"\0" * 8}],
        "upper_bounds": None,
        "sort_order_id": 1 if is_data else None,
        "referenced_data_file": None if is_data else url,
    }
    return Entry(number, file)


class History:
    """A manifest, which each change replaces, and its files by name."""

    def __init__(self, content: Content) -> None:
        self.content = content
        self.number = 1
        self.files = {name: make_entry(1, name, content) for name in range(80)}
        self.encoded, self.listed = encode_manifest([*self.files.values()], content, 1, 0, SCHEMA)
        self.copied_files = 0

    def change(self, removed: Collection[int], new: Iterable[int]) -> None:
        self.number += 1
        added = {name: make_entry(self.number, name, self.content) for name in new}
        urls = {self.files[name].data_path for name in removed}
        path = f"file:///m-1-of-4-data-{self.number - 1}-00000000000a.avro"
        before = Manifest(1, 4, {**self.listed, "manifest_path": path})
        entries, copied = split_manifest(self.encoded, before, urls)
        assert urls <= {each.data_path for each in entries}
        self.copied_files += copied.files if copied else 0
        left = [*added.values(), *(each for each in entries if each.data_path not in urls)]
        self.encoded, self.listed = encode_manifest(
            left, self.content, self.number, self.number - 1, SCHEMA, copied
        )
        kept = {name: each for name, each in self.files.items() if name not in removed}
        self.files = kept | added


@pytest.mark.parametrize("content", [*Content])
def test_a_manifest_copies_the_blocks_without_changes(content: Content) -> None:
    choice = random.Random(choose_seed())
    history = History(content)
    for number in range(1, 60):
        removed = choice.sample(
            sorted(history.files), min(choice.randint(0, 3), len(history.files))
        )
        new = range(100 * number, 100 * number + choice.randint(0, 3))
        # A file whose shown rows change is replaced.
        history.change(removed, [*removed[:1], *new])
        check_manifest(history.encoded, history.listed, [*history.files.values()], history.number)
    assert history.copied_files > 40 * 59


def test_blocks_stay_few() -> None:
    history = History(Content.DATA)
    for name in range(40):
        history.change([], [1000 + name])
        history.change([name], [])
    assert {each.path for each in decode_manifest(history.encoded)} == {
        each.path for each in history.files.values()
    }
    assert len([*fastavro.block_reader(io.BytesIO(history.encoded))]) < 20


def check_manifest(
    encoded: bytes, listed: dict[str, Any], files: list[Entry], snapshot: int
) -> None:
    def by_path(each: Entry) -> str:
        return each.path

    assert sorted(decode_manifest(encoded), key=by_path) == sorted(files, key=by_path)
    records: list[Any] = [*fastavro.reader(io.BytesIO(encoded))]
    for each in records:
        assert (each["status"] == Status.ADDED) == (each["sequence_number"] == snapshot)
    added = [each for each in files if each.number == snapshot]
    assert listed["added_files_count"] == len(added)
    assert listed["existing_files_count"] == len(files) - len(added)
    assert listed["added_rows_count"] == sum(each.rows for each in added)
    rows = listed["added_rows_count"] + listed["existing_rows_count"]
    assert rows == sum(each.rows for each in files)
    assert listed["min_sequence_number"] <= min(each.number for each in files)
