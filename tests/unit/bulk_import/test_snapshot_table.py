"""Bulk imports into a snapshot table, each of which is a load that replaces all rows."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.bulk_import.run import BulkImportResult
from sleeper.bulk_import.service import bulk_import_paths
from sleeper.errors import InvalidRequestError
from sleeper.jobs.event import JobKind
from sleeper.jobs.status import JobState
from sleeper.splitting.service import split_table
from tests.unit.bulk_import.in_process import InProcessCluster

SCHEMA = {"rowKeyFields": [{"name": "k", "type": "LongType"}]}
PROPERTIES = {
    "sleeper.table.type": "snapshot",
    "sleeper.table.bulk.import.min.leaf.partitions": "4",
    "sleeper.table.bulk.import.leaf.bytes.min": "0",
    "sleeper.table.partition.splitting.threshold": "100",
}


@pytest.fixture
def table(tmp_path: Path) -> Iterator[sleeper.Table]:
    with sleeper.create_instance(tmp_path / "instance") as instance:
        yield instance.create_table("t", SCHEMA, PROPERTIES)


def do_nothing() -> None:
    """Does nothing before the tasks write."""


def bulk_import(
    table: sleeper.Table,
    folder: Path,
    *keys: int,
    job_id: str | None = None,
    before_write: Callable[[], object] = do_nothing,
) -> BulkImportResult:
    path = folder / "rows.parquet"
    pq.write_table(pa.table({"k": pa.array(keys, pa.int64())}), path)
    cluster = InProcessCluster(before_write=before_write)
    return bulk_import_paths(table._instance, "t", [str(path)], lambda: cluster, job_id)


def keys(table: sleeper.Table) -> list[int]:
    found: list[int] = table.query().to_arrow()["k"].to_pylist()
    return found


def leaves(table: sleeper.Table) -> int:
    with table._instance.table("t").state.reading() as state:
        return sum(1 for _ in state.partitions.leaves())


def test_an_import_replaces_all_rows_and_keeps_the_leaves(
    table: sleeper.Table, tmp_path: Path
) -> None:
    first = bulk_import(table, tmp_path, *range(4000), job_id="a")
    assert leaves(table) == 4
    assert bulk_import(table, tmp_path, *range(10, 20)).rows == 10
    assert (keys(table), leaves(table)) == ([*range(10, 20)], 4)
    again = bulk_import(table, tmp_path, *range(4000), job_id="a")
    assert (again.done_before, again.number) == (True, first.number)
    assert keys(table) == [*range(10, 20)]
    bulk_import(table, tmp_path)
    assert keys(table) == []


def test_an_import_survives_a_split_of_its_leaves(table: sleeper.Table, tmp_path: Path) -> None:
    bulk_import(table, tmp_path, *range(1000))
    before = leaves(table)

    def split() -> None:
        split_table(table._instance, "t")

    bulk_import(table, tmp_path, *range(500, 1500), before_write=split)
    assert leaves(table) > before
    assert keys(table) == [*range(500, 1500)]


def test_an_overtaken_import_is_rejected(table: sleeper.Table, tmp_path: Path) -> None:
    def overtake() -> None:
        table.ingest(pa.table({"k": [7]}), job_id="late")

    with pytest.raises(InvalidRequestError, match="load late, which began later"):
        bulk_import(table, tmp_path, 1, 2, job_id="early", before_write=overtake)
    assert keys(table) == [7]
    (job,) = table._instance.jobs.tracker.recent(JobKind.BULK_IMPORT)
    assert (job.job_id, job.state) == ("early", JobState.REJECTED)
