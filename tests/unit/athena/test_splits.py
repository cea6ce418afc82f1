"""Splits: only leaves with matching keys, all at one version, with large leaves divided."""

import itertools
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from sleeper.admin.tables import create_table
from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.partitions.partition import subtree
from sleeper.query.distributed import plan
from sleeper.statestore.transactions.partition_split import SplitPartition
from tests.unit.athena.protocol import Athena, Json, among, from_to

SCHEMA = """{"rowKeyFields":[{"name":"id","type":"LongType"}],
 "valueFields":[{"name":"v","type":"StringType"}]}"""
ROWS = 10_000


def rows(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"id": numbers, "v": [f"v{n}" for n in numbers]})


@pytest.fixture
def table(instance: Instance) -> str:
    """Four leaves of 100 keys, the last empty."""
    create_table(instance, "t", SCHEMA, split_points=[100, 200, 300])
    ingest_rows(instance, "t", [rows(*range(0, 300))])
    return "t"


def versions(splits: list[Json]) -> set[str]:
    return {split["properties"]["version"] for split in splits}


def holds(instance: Instance) -> list[Any]:
    return list(instance.table("t").state.holds.all())


def test_each_leaf_with_rows_is_a_split(athena: Athena, table: str):
    splits = athena.splits(table)
    assert len(splits) == 3
    assert len({s["spillLocation"]["key"] for s in splits}) == 3
    assert len({s["encryptionKey"]["key"] for s in splits}) == 3
    assert all(s["spillLocation"]["key"].startswith("athena/q1/") for s in splits)


def group_leaves(athena: Athena, **settings: int) -> Athena:
    """Returns a client that groups small leaves."""
    connector = athena.connector
    changed = replace(connector.settings, **{"leaves_per_split": 100, **settings})
    return Athena(replace(connector, settings=changed))


def regions(splits: list[Json]) -> list[Json]:
    return [json.loads(split["properties"]["region"]) for split in splits]


def test_adjacent_small_leaves_share_a_split(athena: Athena, instance: Instance, table: str):
    (split,) = group_leaves(athena).splits(table)
    (region,) = regions([split])
    assert (region["id"]["min"], region["id"]["max"]) == (-(2**63), 300)
    assert len(group_leaves(athena, leaves_per_split=2).splits(table)) == 2
    (shared,) = files(instance)
    for thirds, count in ((3, 1), (2, 2), (1, 3)):
        split_bytes = shared.bytes * thirds // 3 + 1
        assert len(group_leaves(athena, split_bytes=split_bytes).splits(table)) == count
    # The query needs no rows of the leaf between.
    assert len(group_leaves(athena).splits(table, {"id": among(pa.int64(), 5, 250)})) == 1


def test_pages_of_splits_contain_each_leaf_once(athena: Athena, instance: Instance):
    create_table(instance, "t", SCHEMA, split_points=list(range(10, 300, 10)))
    ingest_rows(instance, "t", [rows(*range(300))])
    splits = group_leaves(athena, leaves_per_split=4, splits_per_page=2).splits("t")
    result = [(r["id"]["min"], r["id"]["max"]) for r in regions(splits)]
    ends = [-(2**63), *range(40, 300, 40), None]
    assert result == list(itertools.pairwise(ends))
    assert len(holds(instance)) == 1


def test_leaves_of_several_fields_share_a_split_if_they_form_one_region(
    athena: Athena, instance: Instance
):
    fields = [{"name": name, "type": "LongType"} for name in ("id", "part")]
    create_table(instance, "t", json.dumps({"rowKeyFields": fields}))
    numbers = list(range(400))
    parts = [n % 20 for n in numbers]
    ingest_rows(instance, "t", [pa.record_batch({"id": numbers, "part": parts})])
    for dimension, point in ((0, 200), (1, 10)):
        split_leaves(instance, dimension, point)
    assert len(athena.splits("t")) == 4
    reader = group_leaves(athena)
    splits = reader.splits("t")
    assert len(splits) == 2
    read = [batch for split in splits for batch in reader.batches(reader.read("t", split))]
    assert sorted(n for batch in read for n in batch["id"].to_pylist()) == numbers


def split_leaves(instance: Instance, dimension: int, point: int) -> None:
    """Splits every leaf at one point of a field."""
    store = instance.table("t").state
    with store.reading() as state:
        splits = list(state.partitions.leaves())
    for leaf in splits:
        parts = tuple(subtree(leaf, dimension, [point]))
        store.commit_or_raise(SplitPartition(leaf.id, parts))


def test_only_leaves_that_overlap_the_keys_are_splits(athena: Athena, table: str):
    assert len(athena.splits(table, {"id": among(pa.int64(), 5, 250)})) == 2
    assert len(athena.splits(table, {"id": from_to(pa.int64(), 100, 200)})) == 1
    assert athena.splits(table, {"id": among(pa.int64(), 301)}) == []
    assert len(athena.splits(table, {"v": among(pa.string(), "v1")})) == 3


def test_splits_are_of_one_version_under_one_hold(athena: Athena, instance: Instance, table: str):
    splits = athena.splits(table)
    (hold,) = holds(instance)
    assert versions(splits) == {str(hold.version)}
    assert hold.owner == "Athena query q1"
    assert {split["properties"]["hold"] for split in splits} == {hold.id}


@pytest.mark.parametrize("leaves_per_plan", [1, 500])
def test_all_pages_have_the_version_of_the_first(
    athena: Athena,
    instance: Instance,
    table: str,
    leaves_per_plan: int,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(plan, "_LEAVES_PER_PLAN", leaves_per_plan)
    connector = athena.connector
    paged = Athena(replace(connector, settings=replace(connector.settings, splits_per_page=2)))
    first = paged.splits_page(table, None, None)
    ingest_rows(instance, table, [rows(350)])
    last = paged.splits_page(table, None, first["continuationToken"])
    assert [len(first["splits"]), len(last["splits"])] == [2, 1]
    assert len(versions(first["splits"] + last["splits"])) == 1
    assert last["continuationToken"] is None
    assert len(holds(instance)) == 1


def test_an_unknown_token_is_refused(athena: Athena, table: str):
    with pytest.raises(InvalidRequestError, match=r"not a continuation token .* 'next'"):
        athena.splits_page(table, None, "next")


def test_a_large_leaf_is_divided_into_splits_with_each_row_once(athena: Athena, instance: Instance):
    create_table(instance, "t", SCHEMA)
    for start in range(2):
        ingest_rows(instance, "t", [rows(*range(start, ROWS, 2))])
    size = sum(f.bytes for f in files(instance))
    settings = replace(athena.connector.settings, split_bytes=size // 4)
    cut = Athena(replace(athena.connector, settings=settings))
    splits = cut.splits("t")
    read = [next(cut.batches(cut.read("t", split))) for split in splits]
    assert 4 <= len(splits) <= 6
    assert all(0 < batch.num_rows < ROWS // 2 for batch in read)
    assert sorted(n for b in read for n in b["id"].to_pylist()) == list(range(ROWS))
    # A query for one key needs one split.
    assert len(cut.splits("t", {"id": among(pa.int64(), 5)})) == 1


def test_a_shared_file_counts_by_each_leaf_s_rows(athena: Athena, instance: Instance):
    settings = {"sleeper.table.ingest.file.writing.strategy": "one_reference_per_leaf"}
    create_table(instance, "t", SCHEMA, settings, split_points=[ROWS // 2])
    ingest_rows(instance, "t", [rows(*range(ROWS))])
    (file,) = files(instance)
    narrow = replace(athena.connector.settings, split_bytes=file.bytes * 6 // 10)
    assert len(Athena(replace(athena.connector, settings=narrow)).splits("t")) == 2


def files(instance: Instance) -> list[Any]:
    with instance.table("t").state.reading() as state:
        return list(state.files.all())


def test_pages_of_a_collected_version_are_refused(athena: Athena, instance: Instance, table: str):
    newest = instance.table("t").state
    with newest.reading() as state:
        version = state.number
    with pytest.raises(InvalidRequestError, match="does not exist yet"):
        athena.splits_page(table, None, f"{version + 9}/hold/0")
    with pytest.raises(
        StateMovedOnError, match=r"version 0 is no longer readable .*hold of 3600 seconds"
    ):
        athena.splits_page(table, None, "0/hold/0")
