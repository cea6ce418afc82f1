"""Reads by SQL equal the same reads of Python objects, for every key type."""

import tempfile
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.errors import ConflictError, NotFoundError, UnavailableError
from sleeper.files import DataFile
from sleeper.local.state_store import open_state_store
from sleeper.partitions.partition import ROOT_PARTITION_ID, Partition, PartitionId, split_region
from sleeper.partitions.region import Range, Region, whole_region
from sleeper.schema.model import Field, PrimitiveType, Schema, schema_to_json
from sleeper.statestore.reading import file_queries
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.table_definition import InitialiseTable
from tests.clock import START_MS, FakeClock
from tests.examples import examples

SCHEMA = Schema((Field("text", PrimitiveType.STRING), Field("raw", PrimitiveType.BYTE_ARRAY)))
texts = st.text(st.sampled_from("\0aZ~é\uffff\U0001f600"), max_size=3)
blobs = st.binary(max_size=2)
VALUES = (texts, blobs)


@st.composite
def regions(draw) -> Region:
    ranges = []
    for values in VALUES:
        low, high = sorted((draw(values), draw(values)))
        ranges.append(Range(low, None if draw(st.booleans()) or low == high else high))
    return Region(tuple(ranges))


@st.composite
def trees(draw) -> list[Partition]:
    """A tree split at drawn points, along either key field."""
    leaves = [(ROOT_PARTITION_ID, None, whole_region(SCHEMA))]
    steps: list[Partition] = []
    for i in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, len(leaves) - 1))
        dimension = draw(st.integers(0, 1))
        point = draw(VALUES[dimension])
        partition_id, parent, region = leaves[place]
        full_range = region.ranges[dimension]
        if full_range.contains(point) and point != full_range.min:
            del leaves[place]
            steps.append(Partition(partition_id, region, parent, is_leaf=False))
            for side, part in zip("lr", split_region(region, dimension, point), strict=True):
                leaves.append((PartitionId(f"{side}{i}"), partition_id, part))
    return steps + [Partition(i, region, parent) for i, parent, region in leaves]


bounds = st.tuples(*(st.tuples(v, v).map(sorted) for v in VALUES))


@settings(max_examples=examples(40), deadline=None)
@given(trees(), st.lists(regions(), min_size=1, max_size=3), st.lists(bounds, max_size=6))
def test_descent_and_file_choice_agree_with_brute_force(tree, requested, boxes):
    files = [
        DataFile(f"f{i}", 1, 1, tuple(b[0] for b in box), tuple(b[1] for b in box))
        for i, box in enumerate(boxes)
    ]
    with tempfile.TemporaryDirectory() as folder:
        store = open_state_store(Path(folder, "state.db"), FakeClock())
        store.commit_or_raise(InitialiseTable(schema_to_json(SCHEMA), tuple(tree)))
        new = tuple(NewFile(f, ((ROOT_PARTITION_ID, 1),)) for f in files)
        store.commit_or_raise(AddFiles("job", START_MS, new))
        with store.reading() as state:
            assert list(state.partitions.all()) == tree
            expected = [
                p for p in tree if p.is_leaf and any(p.region.overlaps(r) for r in requested)
            ]
            result = state.partitions.leaves_overlapping(requested)
            assert sorted(result, key=lambda p: p.id) == sorted(expected, key=lambda p: p.id)
            mins = [tuple(r.min for r in p.region.ranges) for p in result]
            assert mins == sorted(mins)
            leaf = next(p for p in tree if p.is_leaf)
            for region in requested:
                assert [f.path for f in state.files.leaf_files(leaf.id, region)] == [
                    f.path for f in files if region.overlaps_bounds(f.smallest_key, f.largest_key)
                ]
                ids = [p.id for p in tree if p.is_leaf]
                by_leaf = {i: state.files.leaf_files(i, region) for i in ids}
                with mock.patch.object(file_queries, "_LEAVES_PER_QUERY", 2):
                    assert state.files.files_by_leaf(ids, region) == {
                        i: found for i, found in by_leaf.items() if found
                    }
        store.close()


def test_totals_count_files_references_and_rows(table):
    table.ingest("a", "b")
    with table.store.reading() as state:
        totals = state.files.totals()
    assert (totals.files, totals.references, totals.rows, totals.bytes) == (2, 2, 20, 200)
    assert (totals.partitions, totals.leaves, totals.unreferenced_files) == (1, 1, 0)


def test_references_are_summed_by_partition_and_found_by_file(table):
    table.split("root", 50, "left", "right")
    table.ingest("a", "b")
    table.ingest("c", partition="left")
    table.assign("job", "a", "b")
    with table.store.reading() as state:
        all_rows = list(state.files.references())
        expected = [r for r in all_rows if r.path in {"b", "c"}]
        result = state.files.file_references(["c", "not there", "b"])
        assert sorted(result, key=lambda r: r.path) == sorted(expected, key=lambda r: r.path)
        assert len(expected) == 2
        assert sorted(state.files.partition_totals()) == [
            ("left", 10, 1, 100),
            ("root", 20, 2, 200),
        ]
    with table.store.reading(2) as state:
        assert list(state.files.partition_totals()) == []


def test_the_change_feed_gives_every_file_once_in_bounded_pages(table):
    table.ingest("a", "b")
    table.ingest("c")
    table.ingest("d")
    pages, current = [], 0
    with table.store.reading() as state:
        while page := state.files.ingested_after(current, 2):
            pages.append([f.path for _, f in page])
            current = page[-1][0]
    assert pages == [["a", "b"], ["c", "d"]]


def test_a_job_is_found_by_its_id(table):
    table.ingest("a", "b")
    table.assign("job", "a", "b", lease_ms=7)
    with table.store.reading() as state:
        job = state.jobs.get("job")
        assert (job.partition_id, job.inputs) == ("root", ("a", "b"))
        assert (job.lease_expiry_ms, job.assigned_number) == (START_MS + 7, 3)
        assert state.jobs.get("other") is None
        assert state.jobs.applied("job") is None
        assert [(p, [f.job_id for f in files]) for p, files in state.files.leaf_references()] == [
            ("root", ["job", "job"])
        ]


def test_an_unknown_partition_is_not_found(table):
    with table.store.reading() as state, pytest.raises(NotFoundError, match="no partition x"):
        state.partitions.get(PartitionId("x"))


def test_a_version_that_is_not_reached_is_refused_naming_the_newest(table):
    with pytest.raises(Exception, match="newest is 1"), table.store.reading(2):
        pass


def test_a_full_disk_is_unavailable_and_loses_no_data(table):
    database = table.store._database
    with database.exclusively() as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
    committed = []

    def fill_the_disk() -> None:
        for i in range(1000):
            table.ingest(f"f{i}")
            committed.append(f"f{i}")

    with pytest.raises(UnavailableError, match="full"):
        fill_the_disk()
    assert table.leaf_paths("root") == committed
    with database.exclusively() as connection:
        connection.execute("PRAGMA max_page_count = 1000000")
    assert table.ingest("more").number == len(committed) + 2


def test_a_conflict_of_a_log_that_shares_the_file_rolls_the_state_back(table, monkeypatch):
    monkeypatch.setattr("sleeper.retries.sleep", lambda _: None)
    monkeypatch.setattr(table.log, "append", _conflict)
    with pytest.raises(ConflictError):
        table.ingest("a")
    monkeypatch.undo()
    assert table.leaf_paths("root") == []


def _conflict(entry):
    raise ConflictError("taken")
