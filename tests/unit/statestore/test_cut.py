"""The state of a version as that of a table of its own: it reads as the version did."""

import itertools
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sleeper.errors import InvalidRequestError
from sleeper.export_queue.table_queries import queues_in
from sleeper.export_queue.transactions import CreateExportQueue
from sleeper.files import KeyFile
from sleeper.local.state_store import install_state, open_state_store
from sleeper.partitions.partition import PartitionId
from sleeper.partitions.region import Range, Region
from sleeper.statestore.reading.delete_queries import find_deleted
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.holds import CreateFollower
from sleeper.statestore.transactions.transaction import Status
from tests.examples import examples
from tests.tables.state_table import StateTable, read_tables
from tests.unit.statestore.test_fold_property import STEPS, History

TABLES = {
    "export_queues",
    "pins",
    "position",
    "schema_versions",
    "snapshot_versions",
    "processing_versions",
    "applied",
    "refs",
    "jobs",
    "unsplittable",
    "holds",
    "followers",
    "entry_times",
    "history",
    "partitions",
    "files",
    "deletes",
    "key_files",
}


class HistoryWithDeletes(History):
    def delete(self, choice: int) -> None:
        region = Region((Range(choice * 30, choice * 30 + 60),))
        name, now_ms = f"delete-{self.count}", self.table.clock.now_ms
        if choice % 2:
            self.table.commit(DeleteRows((region,), id=name))
        else:
            keys = KeyFile(f"t/data/deletes/{name}.parquet", 2, 90, region)
            self.table.commit(DeleteRows((), keys, now_ms, "keys", id=name))

    def mark(self, choice: int) -> None:
        self.table.commit(CreateFollower(f"follower-{self.count}", 1))


def describe(state: TableState) -> dict[str, Any]:
    """Describes what readers of the version see."""
    leaves = {}
    for leaf in state.partitions.leaves():
        deletes = state.deletes.overlapping(leaf.region)
        files = state.files.leaf_files(PartitionId(leaf.id))
        leaves[leaf.id] = [(f, find_deleted(f, deletes)) for f in files]
    return {
        "leaves": leaves,
        "partitions": sorted((p.id, p.parent_id, p.is_leaf) for p in state.partitions.all()),
        "files": list(state.files.all()),
        "references": sorted((r.path, r.partition_id, r.rows) for r in state.files.references()),
        "schema": state.schema,
        "processing": state.processing_json,
        "time": state.version_time_ms,
    }


def cut(table: StateTable, version: int, folder: Path, keeps_ids: bool = False) -> StateStore:
    """Returns the state of the version, installed with a log of its own."""
    file = folder / f"cut-{version}.db"
    table.store.copy_version(version, file, keeps_ids)
    path = folder / f"installed-{version}" / "state.db"
    path.parent.mkdir()
    install_state(path, file)
    return open_state_store(path, table.clock)


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.sampled_from((*STEPS, "delete", "delete", "mark")), st.integers(0, 30)),
        max_size=30,
    ),
    st.integers(0, 1000),
)
def test_the_state_of_any_version_reads_as_the_version(
    steps: list[tuple[str, int]], choice: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        history = HistoryWithDeletes(folder)
        for kind, amount in steps:
            history.step(kind, amount)
        table = history.table
        with table.store.reading() as state:
            versions = range(state.oldest_version, state.number + 1)
        version = versions[choice % len(versions)]
        with table.store.reading(version) as state:
            expected = describe(state)
        copy = cut(table, version, folder)
        with copy.reading() as state:
            assert describe(state) == expected
            assert (state.number, state.horizon) == (version, version)
            assert state.files.totals().unreferenced_files == 0
            assert state.files.totals().files == len(expected["files"])
            assert not list(state.jobs.assigned())
            assert not state.collection.logged_holds()
            assert not state.collection.follower_starts()
        copy.commit_or_raise(DeleteRows((Region((Range(0, None),)),), id="delete-again"))
        with copy.reading() as state:
            assert state.number == version + 1
        copy.close()
        table.store.close()


def test_every_table_of_the_state_is_cut(table: StateTable, tmp_path: Path) -> None:
    """A table that is added to the fold needs a decision in `version_copy.py`, and a line here."""
    assert set(read_tables(tmp_path / "state.db")) == TABLES


@pytest.mark.parametrize("keeps_ids", [False, True])
def test_ids_up_to_the_version_are_kept_on_request(
    table: StateTable, tmp_path: Path, keeps_ids: bool
) -> None:
    first, second = table.ingest_job("a", job_id="first"), table.ingest_job("b", job_id="second")
    table.commit(first)
    version = table.number()
    table.commit(second)
    copy = cut(table, version, tmp_path, keeps_ids)
    # The file exists already. Only its job's id shows that it is the same job.
    repeated = Status.ALREADY_DONE if keeps_ids else Status.REFUSED
    assert [o.status for o in copy.commit(first, second)] == [repeated, Status.APPLIED]
    copy.close()


@pytest.mark.parametrize("keeps_ids", [False, True])
def test_export_queues_are_kept_with_the_ids(
    table: StateTable, tmp_path: Path, keeps_ids: bool
) -> None:
    table.commit(CreateExportQueue("early", "ingest", "{}"))
    table.commit(CreateFollower("reader", 1))
    version = table.number()
    table.commit(CreateExportQueue("late", "ingest", "{}"))
    copy = cut(table, version, tmp_path, keeps_ids)
    with copy.reading() as state:
        found = [(each.name, each.start) for each in queues_in(state).all()]
        followers = [name for name, _, _ in state.collection.follower_starts()]
    assert found == ([("early", version)] if keeps_ids else [])
    assert followers == (["export-queue:early"] if keeps_ids else [])
    copy.close()


def test_a_version_that_does_not_exist_is_refused(table: StateTable, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="does not exist yet"):
        table.store.copy_version(table.number() + 1, tmp_path / "cut.db")


def test_an_installed_state_replaces_an_earlier_one(table: StateTable, tmp_path: Path) -> None:
    """A repeated creation installs the state again."""
    table.ingest("a")
    path = tmp_path / "other" / "state.db"
    path.parent.mkdir()
    for number in itertools.count(1):
        table.store.copy_version(number, tmp_path / "cut.db")
        install_state(path, tmp_path / "cut.db")
        store = open_state_store(path)
        with store.reading() as state:
            assert state.number == number
        store.close()
        if number == table.number():
            break
    assert [p.name for p in path.parent.iterdir() if "installing" in p.name] == []
