"""Reads of many leaves whose files hold few rows of each."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.datafiles.arrow import arrow_type
from sleeper.datafiles.engine import expression
from sleeper.datafiles.engine.key_ranges import KeyRanges
from sleeper.datafiles.key_values import from_key_values, key_values
from sleeper.partitions.region import Range, Region
from sleeper.query import leaf_plan
from sleeper.query.request import Query
from sleeper.query.run import plan_table_query, run_query
from sleeper.query.sql.statement import run_sql
from sleeper.schema.model import DecimalType, Field, PrimitiveType, Schema
from sleeper.statestore.transactions.delete_rows import DeleteRows
from tests.examples import examples
from tests.tables.data_table import DataTable, list_rows, make_engine

SCHEMA = Schema((Field("a", PrimitiveType.INT),), (), (Field("v", PrimitiveType.STRING),))
LEAVES = 30
STEP = 4
KEYS = STEP * LEAVES


@pytest.fixture(scope="module", params=[False, True], ids=["rows", "rows and deletes"])
def table(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DataTable]:
    """Files with rows of many leaves, of which some leaves have replaced theirs."""
    table = DataTable(tmp_path_factory.mktemp("table"), SCHEMA, range(STEP, KEYS, STEP))
    for first, step in ((0, 3), (2, 5), (1, 7), (0, 11)):
        table.add_rows([(key, f"{first}/{key}") for key in range(first, KEYS, step)])
    for leaf in table.leaves()[:LEAVES:4]:
        table.compact_partition(leaf)
    table.add_rows([(key, f"new {key}") for key in range(0, KEYS, 2)])
    if request.param:
        deleted = tuple(Region((Range(key, key + 6),)) for key in range(10, KEYS, 25))
        table.store.commit_or_raise(DeleteRows(deleted, id="d"))
        kept = (r for r in table.expected_rows if r[0] < 10 or (r[0] - 10) % 25 >= 6)
        table.expected_rows = list(kept)
    yield table
    table.close()


def rows_of(table: DataTable, region: Region, limit: int | None = None) -> list[Any]:
    query = Query((region,), limit=limit)
    return list_rows(run_query(query, table.query_table, make_engine(table.folder)).read_all())


@pytest.fixture(autouse=True)
def few_ranges_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expression, "_SEARCHED_RANGES_MIN", 2)
    monkeypatch.setattr(expression, "_PRUNING_RANGES", 3)


bounds = st.tuples(st.integers(-5, KEYS), st.none() | st.integers(1, KEYS)).map(
    lambda ends: Region((Range(ends[0], None if ends[1] is None else ends[0] + ends[1]),))
)


@settings(max_examples=examples(10), deadline=None)
@given(region=bounds, limit=st.none() | st.integers(1, 50))
def test_rows_are_those_of_leaves_read_alone(
    table: DataTable, region: Region, limit: int | None
) -> None:
    with mock.patch.object(leaf_plan, "_JOINED_FILES_MAX", 0):
        alone = rows_of(table, region)
    assert is_same(
        sorted(alone), sorted(row for row in table.expected_rows if region.contains(row[:1]))
    )
    joined = rows_of(table, region)
    assert is_same(sorted(joined), sorted(alone))
    # Rows with equal keys have no order.
    keys = [row[0] for row in alone]
    assert keys == sorted(keys)
    assert [row[0] for row in joined] == keys
    assert [row[0] for row in rows_of(table, region, limit)] == keys[:limit]


def is_same(rows: list[Any], expected: list[Any]) -> bool:
    """Compares many rows without pytest's report of the differences."""
    return rows == expected


def test_sql_reads_each_row_once(table: DataTable) -> None:
    engine = make_engine(table.folder)
    statement = "SELECT a, v FROM t WHERE a >= 7"
    result = run_sql(statement, {"t": lambda: table.query_table}, engine).read_all()
    expected = [row for row in table.expected_rows if row[0] >= 7]
    assert is_same(sorted(list_rows(result)), sorted(expected))


def test_files_are_opened_for_many_leaves_at_once(table: DataTable) -> None:
    plan = plan_table_query(Query(), table.query_table)
    joined = leaf_plan.join_neighbours(SCHEMA, plan.leaves)
    assert len(joined) < 5
    ids = [each for leaf in joined for each in leaf.leaf_ids]
    assert ids == [each for leaf in plan.leaves for each in leaf.leaf_ids]
    assert len(ids) > 2 * LEAVES // 3


def test_leaves_with_files_of_their_own_are_read_alone(tmp_path: Path) -> None:
    table = DataTable(tmp_path, SCHEMA, [100, 200])
    for start in (0, 100, 200):
        table.add_rows([(key, "v") for key in range(start, start + 50)])
    plan = plan_table_query(Query(), table.query_table)
    assert leaf_plan.join_neighbours(SCHEMA, plan.leaves) == list(plan.leaves)


START = datetime(1999, 1, 1, tzinfo=UTC)
KINDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int": (PrimitiveType.INT, st.integers(-(2**31), 2**31 - 1)),
    "text": (PrimitiveType.STRING, st.text(max_size=3)),
    "bytes": (PrimitiveType.BYTE_ARRAY, st.binary(max_size=3)),
    "boolean": (PrimitiveType.BOOLEAN, st.booleans()),
    "timestamp": (
        PrimitiveType.TIMESTAMP,
        st.integers(-50, 50).map(lambda n: START + timedelta(microseconds=n)),
    ),
    "date": (PrimitiveType.DATE, st.dates()),
    "decimal": (DecimalType(9, 2), st.integers(-99, 99).map(lambda n: Decimal(n).scaleb(-2))),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_ranges_contain_the_keys_between_their_ends(kind: str, data: st.DataObject) -> None:
    field_type, values = KINDS[kind]
    type_ = arrow_type(field_type)
    ends = data.draw(st.lists(values, min_size=1, max_size=12, unique=True))
    ascending = sorted(key_values(pa.array(ends, type_)))
    pairs = zip(ascending[::2], [*ascending[1::2], None], strict=False)
    ranges = [Range(low, high) for low, high in pairs]
    keys = pa.array(data.draw(st.lists(values, max_size=12)) + ends, type_)
    contained = KeyRanges(ranges, type_).contain(keys).to_pylist()
    expected = [any(each.contains(key) for each in ranges) for key in key_values(keys)]
    assert contained == expected
    assert from_key_values(ascending, type_).type == type_
