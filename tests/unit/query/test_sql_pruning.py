"""Statements return the rows that an evaluation of every row selects, whatever a scan skips."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import SessionConfig, SessionContext
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.write.file import FileSettings
from sleeper.query.engine import QueryEngine, QueryTable
from sleeper.query.sql.statement import TableOpeners, run_sql
from sleeper.schema.model import Field, PrimitiveType, Schema
from tests.examples import examples
from tests.tables.data_table import DataTable, list_rows, make_engine

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
SCHEMA = Schema(
    (Field("k", PrimitiveType.INT),),
    (Field("s", PrimitiveType.LONG),),
    (
        Field("v", PrimitiveType.INT, nullable=True),
        Field("w", PrimitiveType.LONG, nullable=True),
        Field("f", PrimitiveType.DOUBLE, nullable=True),
        Field("g", PrimitiveType.FLOAT, nullable=True),
        Field("t", PrimitiveType.STRING, nullable=True),
    ),
)
INTS = [INT_MIN, INT_MIN + 1, -2, -1, 0, 1, 2, INT_MAX - 1, INT_MAX]
LONGS = [LONG_MIN, LONG_MIN + 1, -5, 0, 5, LONG_MAX - 1, LONG_MAX]
FLOATS = [-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan]
TEXTS = ["", "-1", "0", "é", "zz"]


def make_row(place: int) -> tuple[Any, ...]:
    def pick(values: list[Any], stride: int) -> Any:
        return None if place % (stride + 6) == 0 else values[place * stride // 9 % len(values)]

    return (
        INTS[place % 9],
        LONGS[place % 7],
        *(pick(values, n) for n, values in enumerate((INTS, LONGS, FLOATS, FLOATS, TEXTS), 1)),
    )


ROWS = [make_row(place) for place in range(126)]


@dataclass(repr=False)
class Tables:
    """Tables `t` and `u` of small row groups, and `hiding`, whose files have hidden rows too.

    `memory` has the same rows, of which the engine skips none.
    """

    engine: QueryEngine
    openers: TableOpeners
    memory: SessionContext

    def check(self, statement: str) -> None:
        """Compares the rows of a statement, unless it fails, such as for a text without number."""
        try:
            expected = self.memory.sql(statement).to_arrow_table()
        except Exception:
            return
        rows = run_sql(statement, self.openers, self.engine).read_all()
        assert sorted(map(repr, list_rows(rows))) == sorted(map(repr, list_rows(expected)))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    openers = {}
    memory = SessionContext(SessionConfig().with_target_partitions(1))
    kinds = arrow_schema(SCHEMA)
    columns = [pa.array(c, f.type) for c, f in zip(zip(*ROWS, strict=True), kinds, strict=True)]
    for name in ("t", "hiding", "u"):
        file_settings = FileSettings(row_group_rows_max=4)
        table = DataTable(tmp_path_factory.mktemp(name), SCHEMA, [0], file_settings=file_settings)
        table.add_rows(ROWS)
        if name == "hiding":
            # The file keeps rows that another has replaced.
            table.compact_partition(table.leaves()[0])
        openers[name] = lambda table=table, name=name: QueryTable(name, table.store, table.root)
        memory.register_record_batches(name, [[pa.RecordBatch.from_arrays(columns, schema=kinds)]])
    return Tables(make_engine(tmp_path_factory.mktemp("engine")), openers, memory)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT k FROM {t} WHERE -k < 2",
        "SELECT k FROM {t} WHERE -k < 2 AND k < 0",
        "SELECT v FROM {t} WHERE -v < 2",
        "SELECT w FROM {t} WHERE NOT (-w > -1)",
        "SELECT k FROM {t} WHERE k BETWEEN -k AND -2147483648",
        "SELECT k FROM {t} ORDER BY -k LIMIT 14",
        "SELECT t.k FROM {t} t JOIN u ON -t.k = u.k",
        "SELECT t.k FROM {t} t, u WHERE -t.k < u.v AND u.v < -7",
        "SELECT f FROM {t} WHERE f > 5",
        "SELECT f FROM {t} WHERE f <> 1.5",
        "SELECT f FROM {t} WHERE NOT f <= 1.5",
        "SELECT f FROM {t} WHERE f >= 'NaN'",
        "SELECT g FROM {t} WHERE g NOT IN (1.5, 0)",
        "SELECT f FROM {t} WHERE f IS NOT NULL ORDER BY f DESC LIMIT 3",
        "SELECT max(f), min(f) FROM {t}",
        "SELECT t.f FROM {t} t JOIN u ON t.f = u.f WHERE u.f > 5",
    ],
)
@pytest.mark.parametrize("table", ["t", "hiding"])
def test_numbers_at_the_limits_are_not_skipped(tables: Tables, table: str, statement: str) -> None:
    tables.check(statement.format(t=table))


_INTEGERS = st.sampled_from(["k", "s", "v", "w"])
_LITERALS = st.sampled_from([*map(str, INTS), *map(str, LONGS[1:]), "1.5"])
_NUMBERS = st.recursive(
    st.one_of(_INTEGERS, _INTEGERS, _LITERALS),
    lambda inner: st.one_of(
        inner.map(lambda x: f"(-{x})"),
        inner.map(lambda x: f"(- (-{x}))"),
        st.tuples(inner, st.sampled_from("+-*%"), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        st.tuples(st.sampled_from(["abs", "signum"]), inner).map(lambda p: f"{p[0]}({p[1]})"),
        st.tuples(
            st.sampled_from(["CAST", "TRY_CAST"]),
            inner,
            st.sampled_from(["SMALLINT", "INT", "BIGINT", "DOUBLE", "DECIMAL(20, 2)", "VARCHAR"]),
        ).map(lambda p: f"{p[0]}({p[1]} AS {p[2]})"),
    ),
    max_leaves=3,
)
_OPERATORS = st.sampled_from(["=", "<", "<=", ">", ">=", "<>", "IS DISTINCT FROM"])
_FLOAT_LITERALS = st.sampled_from(["0", "-0.0", "1.5", "'NaN'", "1e300", "-1.5"])
_CONDITIONS = st.recursive(
    st.one_of(
        st.tuples(_NUMBERS, _OPERATORS, _NUMBERS).map(" ".join),
        st.tuples(st.sampled_from(["f", "g", "-f"]), _OPERATORS, _FLOAT_LITERALS).map(" ".join),
        st.tuples(_NUMBERS, _NUMBERS, _NUMBERS).map(lambda p: f"{p[0]} BETWEEN {p[1]} AND {p[2]}"),
        st.tuples(_NUMBERS, st.lists(_LITERALS, min_size=1, max_size=4)).map(
            lambda p: f"{p[0]} IN ({', '.join(p[1])})"
        ),
        st.sampled_from([*(f"{x} IS NULL" for x in "vwft"), "t LIKE '%1'", "t > '-'"]),
    ),
    lambda inner: st.one_of(
        inner.map(lambda x: f"NOT ({x})"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda p: f"({p[0]}) {p[1]} ({p[2]})"
        ),
    ),
    max_leaves=3,
)


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data(), table=st.sampled_from(["t", "hiding"]))
def test_conditions_select_the_rows_of_an_evaluation_without_pruning(
    tables: Tables, data: st.DataObject, table: str
) -> None:
    # The strategy's own text is too long for a report.
    tables.check(f"SELECT * FROM {table} WHERE {data.draw(_CONDITIONS)}")


@pytest.mark.xfail(strict=True, reason="the engine compares with -2, without the overflow")
def test_the_engine_prunes_negations_exactly(tmp_path: Path) -> None:
    assert count_in_file(tmp_path, pa.array([INT_MIN], pa.int32()), "-x < 2") == 1


@pytest.mark.xfail(strict=True, reason="statistics omit NaN, which is greater than all numbers")
def test_the_engine_prunes_floats_exactly(tmp_path: Path) -> None:
    assert count_in_file(tmp_path, pa.array([1.0, math.nan]), "x > 5") == 1


def count_in_file(folder: Path, values: pa.Array, condition: str) -> int:
    """Returns the rows that the engine finds in a Parquet file. These are canaries.

    When they pass, `TableNeeds.prunes_exactly` is not needed for this reason any more.
    """
    pq.write_table(pa.table({"x": values}), folder / "x.parquet")
    config = SessionConfig().set("datafusion.execution.collect_statistics", "false")
    session = SessionContext(config)
    session.register_parquet("t", str(folder / "x.parquet"))
    return session.sql(f"SELECT x FROM t WHERE {condition}").count()
