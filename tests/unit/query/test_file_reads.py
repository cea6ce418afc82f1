"""Reads of files without a merge: their plan is bounded, however often the table is written."""

from collections.abc import Callable

from sleeper.query.distributed.files import FileGroup, divide_files
from sleeper.query.plan import QueryPlan
from sleeper.query.request import Query
from sleeper.query.run import plan_table_query
from tests.tables.data_table import DataTable

LEAVES = 24
ROWS_PER_LEAF = 2


def write(table: DataTable) -> None:
    """Adds files over all leaves, after each of which one leaf is compacted."""
    for step in range(LEAVES):
        table.add_rows([(key, f"{step}") for key in range(LEAVES * ROWS_PER_LEAF)])
        table.compact_partition(table.leaves()[step * 7 % LEAVES])


def plan(table: DataTable) -> QueryPlan:
    return plan_table_query(Query(), table.query_table)


def regions_of(groups: tuple[FileGroup, ...]) -> int:
    return sum(len(group.regions or ()) for group in groups)


def test_a_table_that_is_written_is_read_in_few_groups_and_a_rest(
    make_table: Callable[..., DataTable],
) -> None:
    table = make_table(split_points=[n * ROWS_PER_LEAF for n in range(1, LEAVES)])
    write(table)
    everything, nothing = divide_files(plan(table), groups_max=1000, regions_max=1000)
    assert len(everything) == LEAVES
    assert nothing == ()

    groups, rest = divide_files(plan(table))
    assert len(groups) <= 16
    assert regions_of(groups) <= 64
    assert groups[0].regions is None
    stored = {path for group in groups for path in group.paths}
    left = {scan.file.path for leaf in rest for scan in leaf.scans}
    assert stored.isdisjoint(left)
    assert stored | left == {file.path for file in plan(table).files}
    assert len(left) < len(everything)


def test_the_largest_groups_that_fit_are_not_in_the_rest(
    make_table: Callable[..., DataTable],
) -> None:
    table = make_table(split_points=[10, 20])
    (first, _, last) = table.leaves()
    small = table.add_rows([(key, "") for key in (5, 15, 25)])
    table.compact_partition(first)
    large = table.add_rows([(key, str(key)) for key in range(30)])
    table.compact_partition(last)
    groups, rest = divide_files(plan(table), groups_max=2)
    assert small is not None
    assert large is not None
    assert groups[0].regions is None
    assert groups[1].paths == (large.path,)
    assert [[scan.file.path for scan in leaf.scans] for leaf in rest] == [[small.path]]
