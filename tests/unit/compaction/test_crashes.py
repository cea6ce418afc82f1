"""Kills at every port call of creating and running compactions."""

from collections.abc import Callable

import pytest

from sleeper.partitions.partition import ROOT_PARTITION_ID as ROOT
from tests.tables.data_table import OBJECTS_PER_FILE, DataTable
from tests.tables.watched_ports import Killed
from tests.unit.conftest import MakeTable

CALLS_MAX = 300


def kill_at_each_call(
    make_table: MakeTable, prepare: Callable[[DataTable], None], work: Callable[[DataTable], object]
):
    """Yields the table after the work died at its first port call, its second, and so on."""
    for die_at in range(CALLS_MAX):
        table = make_table()
        prepare(table)
        table.ticks.count, table.ticks.die_at = 0, die_at
        try:
            work(table)
        except Killed:
            table.reopen()
            yield table
        else:
            assert die_at > 3, "nothing was killed"
            return
    pytest.fail(f"there are more than {CALLS_MAX} port calls")


def prepare_split_partition(table: DataTable) -> None:
    table.set(
        sleeper__table__compaction__strategy__class="BasicCompactionStrategy",
        sleeper__table__compaction__files__batch__size=2,
        sleeper__table__gc__delay__minutes=0,
    )
    for _ in range(2):
        table.ingest(range(10))
    table.split_at(ROOT, 5)


EXPECTED_KEYS = sorted([(k,) for k in range(10)] * 2)


def check_recovery(table: DataTable) -> None:
    """Checks that the next creation completes the work without lost, duplicate or locked rows."""
    assert table.row_keys() == EXPECTED_KEYS
    table.create_jobs()
    table.run_all()
    assert table.row_keys() == EXPECTED_KEYS
    assert table.assigned() == []
    assert len(table.files()) == 2
    table.clock.pass_minutes(1)
    table.collect()
    table.clock.pass_minutes(15 * 24 * 60)
    table.collect_orphans()
    assert len(table.paths_on_disk()) == 2 * OBJECTS_PER_FILE
    assert table.row_keys() == EXPECTED_KEYS


def test_killed_creation_loses_no_rows_and_locks_no_files(make_table: MakeTable) -> None:
    deaths = 0
    for table in kill_at_each_call(make_table, prepare_split_partition, DataTable.create_jobs):
        deaths += 1
        check_recovery(table)
    assert deaths > 10


def test_killed_run_loses_no_rows_and_locks_no_files(make_table: MakeTable) -> None:
    def prepare(table: DataTable) -> None:
        prepare_split_partition(table)
        table.create_jobs()

    deaths = 0
    for table in kill_at_each_call(make_table, prepare, DataTable.run_all):
        deaths += 1
        check_recovery(table)
    assert deaths > 20


def test_killed_release_loses_no_rows_and_locks_no_files(make_table: MakeTable) -> None:
    def prepare(table: DataTable) -> None:
        prepare_split_partition(table)
        table.create_jobs()
        table.messages.clear()
        table.clock.pass_minutes(61)

    for table in kill_at_each_call(make_table, prepare, DataTable.create_jobs):
        check_recovery(table)
