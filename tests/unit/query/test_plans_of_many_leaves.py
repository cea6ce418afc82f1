"""Plans of a region over many leaves, whose files are read together."""

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.partitions.region import Range, Region
from sleeper.query.plan import SelectedLeaf, plan_leaves
from sleeper.query.request import Query
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.statestore.reading import file_queries
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.transactions.delete_rows import DeleteRows
from tests.examples import examples
from tests.tables.data_table import DataTable

SCHEMA = Schema((Field("a", PrimitiveType.INT),))
LEAVES = 12
regions = (
    st.tuples(st.integers(-5, 125), st.none() | st.integers(1, 125))
    .map(lambda ends: Range(ends[0], None if ends[1] is None else ends[0] + ends[1]))
    .map(lambda each: Region((each,)))
)


@pytest.fixture(scope="module", params=[False, True], ids=["rows", "rows and deletes"])
def table(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DataTable]:
    """Files of leaves and of the root, which leaves of a split have in common."""
    folder: Path = tmp_path_factory.mktemp("table")
    table = DataTable(folder, SCHEMA, range(10, 10 * LEAVES, 10))
    root = next(p.id for p in table.partitions() if p.parent_id is None)
    for start, step in ((0, 1), (15, 7), (63, 20)):
        table.add_rows([(key,) for key in range(start, 10 * LEAVES, step)])
        table.add_rows([(key,) for key in range(start, start + 30)], root)
    if request.param:
        deleted = (Region((Range(20, 35),)), Region((Range(71, 72),)))
        table.store.commit_or_raise(DeleteRows(deleted, id="d"))
    yield table
    table.close()


def plan(region: Region, state: TableState, leaves_read_alone_max: int) -> list[SelectedLeaf]:
    with mock.patch("sleeper.query.leaf_source._LEAVES_READ_ALONE_MAX", leaves_read_alone_max):
        return plan_leaves(Query((region,)), SCHEMA, state)


@settings(max_examples=examples(40), deadline=None)
@given(region=regions)
def test_plans_are_those_of_leaves_read_alone(table: DataTable, region: Region) -> None:
    with table.store.reading() as state, mock.patch.object(file_queries, "_LEAVES_PER_QUERY", 5):
        assert plan(region, state, 0) == plan(region, state, LEAVES)


def test_files_of_all_leaves_take_one_query(table: DataTable) -> None:
    with table.store.reading() as state:
        statements: list[str] = []
        state.files.connection.set_trace_callback(statements.append)
        whole = Region((Range(-(2**31), None),))
        assert plan(whole, state, 0)
        state.files.connection.set_trace_callback(None)
    assert sum("FROM chain" in each and "files f" in each for each in statements) == 1
