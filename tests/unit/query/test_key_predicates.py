"""Key predicates: the same rows with and without excluded files."""

from itertools import product

import pyarrow as pa
import pytest
from datafusion import DataFrame, SessionContext
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.datafiles.arrow import arrow_schema, view_schema
from sleeper.errors import InvalidRequestError
from sleeper.partitions.region import Range, whole_region
from sleeper.query.engine import QueryEngine, QueryTable
from sleeper.query.sql.explain import explain_sql
from sleeper.query.sql.key_predicates import Regions, needed_regions
from sleeper.query.sql.scans import find_scans
from sleeper.query.sql.statement import StatementRun, run_sql
from sleeper.schema.model import DecimalType, Field, PrimitiveType, Schema
from tests.examples import examples
from tests.tables.data_table import DataTable, list_rows, make_engine

SCHEMA = Schema(
    (
        Field("i", PrimitiveType.INT),
        Field("Text", PrimitiveType.STRING),
        Field("b", PrimitiveType.BYTE_ARRAY),
    ),
    (Field("s", PrimitiveType.LONG),),
    (Field("v", PrimitiveType.LONG, nullable=True), Field("i2", PrimitiveType.INT)),
)
TEXTS = ["", "a", "ab", "abé", "b", "é", "z%", "😀"]


@pytest.fixture(scope="module")
def engine_and_openers(tmp_path_factory: pytest.TempPathFactory) -> tuple[QueryEngine, dict]:
    """Tables t and u with small files: full, shared, above and below splits."""
    openers = {}
    for number, name in enumerate("tu"):
        table = DataTable(tmp_path_factory.mktemp(name), SCHEMA, [-5, 3])
        rows = [
            (i, TEXTS[(i * 7 + n) % 8], bytes([i % 256]), n, None if n == 1 else i - n, i * n)
            for i in range(-10, 12 - number)
            for n in range(3)
        ]
        for leaf in table.leaves():
            for start in range(0, len(rows), 7):
                table.add_rows(rows[start : start + 7], leaf.id)
        table.add_rows(rows[::5])
        table.split_at(table.leaves()[0].id, "ab", 1)
        table.compact_partition(table.leaves()[0])
        table.compact_partition(table.leaves()[-1])
        table.split_at(table.leaves()[-1].id, 7, 0)
        for start in range(0, len(rows), 4):
            table.add_rows(rows[start : start + 4])
        openers[name] = lambda table=table, name=name: QueryTable(name, table.store, table.root)
    return make_engine(tmp_path_factory.mktemp("engine")), openers


numbers = st.integers(-12, 13).map(str)
texts = st.sampled_from([f"'{t}'" for t in TEXTS])
blobs = st.integers(0, 255).map(lambda n: f"x'{n:02x}'")
operators = st.sampled_from(["=", "<", "<=", ">", ">=", "<>", "IS DISTINCT FROM"])
literals = {
    "i": st.one_of(numbers, st.sampled_from(["NULL", "2.5", "'3'", "5000000000", "1+2", "-i2"])),
    "Text": st.one_of(texts, st.sampled_from(["NULL", "lower('AB')", "concat('a','b')"])),
    "b": st.one_of(blobs, st.sampled_from(["NULL", "'a'"])),
    "s": numbers,
    "v": st.one_of(numbers, st.just("NULL")),
}
fields = st.sampled_from(["i", "i", "Text", "Text", "b", "s", "v"])


@st.composite
def comparisons(draw: st.DrawFn, table: str) -> str:
    field = draw(fields)
    name = f'{table}."{field}"'
    value = literals[field]
    match draw(st.integers(0, 7)):
        case 0:
            values = ", ".join(draw(st.lists(value, min_size=1, max_size=6)))
            return f"{name} {draw(st.sampled_from(['', 'NOT ']))}IN ({values})"
        case 1:
            maybe = draw(st.sampled_from(["", "NOT "]))
            return f"{name} {maybe}BETWEEN {draw(value)} AND {draw(value)}"
        case 2:
            return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
        case 3:
            pattern = draw(
                st.sampled_from(["a%", "ab%", "%b", "a_%", "é%", "😀%", "%", "z\\%", ""])
            )
            kind = draw(st.sampled_from(["LIKE", "NOT LIKE", "ILIKE"]))
            return f"{table}.\"Text\" {kind} '{pattern}'"
        case 4:
            return f"abs({table}.i) {draw(operators)} {draw(numbers)}"
        case 5:
            return f"{draw(value)} {draw(operators)} {name}"
        case _:
            return f"{name} {draw(operators)} {draw(value)}"


def conditions(table: str) -> st.SearchStrategy[str]:
    return st.recursive(
        comparisons(table),
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda p: f"({p[0]} AND {p[1]})"),
            st.tuples(inner, inner).map(lambda p: f"({p[0]} OR {p[1]})"),
            inner.map(lambda p: f"NOT ({p})"),
            inner.map(lambda p: f"(({p}) IS TRUE)"),
            inner.map(lambda p: f"CASE WHEN {p} THEN true ELSE false END"),
        ),
        max_leaves=5,
    )


STATEMENTS = [
    "SELECT * FROM t AS x WHERE {x}",
    "SELECT count(*), sum(x.v) FROM t x WHERE {x}",
    "SELECT x.*, y.v AS yv FROM t x JOIN u y ON x.i = y.i WHERE {x} AND {y}",
    "SELECT x.i, y.i AS yi FROM t x LEFT JOIN t y ON x.i = y.i2 AND {y} WHERE {x}",
    "SELECT x.i, y.i AS yi FROM t x FULL JOIN u y ON x.i = y.i AND {y} AND {x}",
    "SELECT x.i FROM t x WHERE {x} UNION ALL SELECT y.i FROM t y WHERE {y}",
    "SELECT x.i FROM t x WHERE {x} EXCEPT SELECT y.i FROM t y WHERE {y}",
    "SELECT * FROM t x WHERE x.i IN (SELECT y.i2 FROM u y WHERE {y}) AND {x}",
    "SELECT * FROM t x WHERE x.i NOT IN (SELECT y.i FROM t y WHERE {y}) OR {x}",
    "SELECT * FROM t x WHERE EXISTS (SELECT 1 FROM t y WHERE y.i = x.i2 AND {y}) AND {x}",
    "SELECT * FROM t x WHERE x.i >= (SELECT min(y.i) FROM t y WHERE {y}) AND {x}",
    "WITH x AS (SELECT * FROM t), y AS (SELECT * FROM x WHERE i > 2) "
    "SELECT y.v FROM y WHERE {y} UNION ALL SELECT x.v FROM x WHERE {x}",
    'WITH t AS (SELECT i2 AS i, "Text", b, s, v FROM t) SELECT * FROM t x WHERE {x}',
    'SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY i ORDER BY s, "Text", b) AS n '
    "FROM t) x WHERE n = 1 AND {x}",
    'SELECT x.i, count(*) FROM t x GROUP BY x.i, x."Text", x.b, x.s, x.v HAVING {x}',
    'SELECT * FROM (SELECT i2 AS i, v AS s, s AS v, "Text", b FROM t) x WHERE {x}',
]


@pytest.mark.parametrize("statement", STATEMENTS)
@settings(max_examples=examples(5), deadline=None)
@given(data=st.data())
def test_narrowed_statements_return_the_same_rows(
    engine_and_openers: tuple[QueryEngine, dict], statement: str, data: st.DataObject
) -> None:
    engine, openers = engine_and_openers
    text = statement.format(x=data.draw(conditions("x")), y=data.draw(conditions("y")))
    try:
        expected = run_sql(text, openers, engine, narrow=False).read_all()
    except InvalidRequestError:
        return  # such as a text that is no number
    try:
        result = run_sql(text, openers, engine).read_all()
    except InvalidRequestError as error:
        pytest.fail(f"{text}: {error}")
    assert result.schema == expected.schema
    assert sorted(list_rows(result), key=repr) == sorted(list_rows(expected), key=repr), text


@pytest.fixture(scope="module")
def keys() -> SessionContext:
    """A table t with many keys, in memory."""
    rows = list(product(range(-12, 14), TEXTS, [b"", b"\0", b"a", b"b", b"\xff"]))
    rows = [
        (*key, number % 5, None if number % 7 == 0 else number % 11 - 5, number % 9)
        for number, key in enumerate(rows)
    ]
    columns = zip(*rows, strict=True)
    kind = view_schema(SCHEMA)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, kind, strict=True)]
    session = SessionContext()
    session.register_record_batches("t", [[pa.RecordBatch.from_arrays(arrays, schema=kind)]])
    return session


def find_regions(schema: Schema, frame: DataFrame) -> Regions:
    scans = find_scans(frame)
    return None if scans is None else needed_regions(schema, scans)


@settings(max_examples=examples(150), deadline=None)
@given(condition=conditions("x"))
def test_regions_contain_every_row_that_satisfies_the_predicate(
    keys: SessionContext, condition: str
) -> None:
    try:
        frame = keys.sql(f'SELECT i, "Text", b FROM t x WHERE {condition}')
        rows = list_rows(frame.to_arrow_table())
    except Exception:
        return  # such as a text that is no number
    regions = find_regions(SCHEMA, frame)
    if regions is None:
        return
    for key in rows:
        assert any(r.contains(key) for r in regions), (condition, key)


OTHERS = Schema(
    (
        Field("at", PrimitiveType.TIMESTAMP),
        Field("day", PrimitiveType.DATE),
        Field("is_open", PrimitiveType.BOOLEAN),
        Field("fare", DecimalType(9, 2)),
    ),
    (),
    (Field("v", PrimitiveType.LONG),),
)
SECOND = 1_357_017_300_000_000


@pytest.mark.parametrize(
    ("condition", "place", "within"),
    [
        ("at = '2013-01-01T05:15:00Z'", 0, Range(SECOND, SECOND + 1)),
        ("at < TIMESTAMP '2013-01-01 05:15:00'", 0, Range(-(2**63), SECOND)),
        ("at >= DATE '1970-01-02'", 0, Range(86_400_000_000, None)),
        ("day = '2013-01-01'", 1, Range(15_706, 15_707)),
        ("day > DATE '2013-01-01'", 1, Range(15_707, None)),
        ("is_open", 2, Range(1, None)),
        ("is_open = TRUE AND v = 1", 2, Range(1, None)),
        ("NOT is_open", 2, Range(0, 1)),
        ("is_open = false", 2, Range(0, 1)),
        ("fare = 12.5", 3, Range(1250, 1251)),
        ("fare <= -1", 3, Range(-(10**9) + 1, -99)),
        ("fare IN (1)", 3, Range(100, 101)),
    ],
)
def test_literals_of_other_key_types_narrow(condition: str, place: int, within: Range) -> None:
    assert needed(condition) == [within if n == place else w for n, w in enumerate(WHOLE)]


@pytest.mark.parametrize(
    "condition", ["fare > 1.255", "v = 1", "is_open OR v = 1", "date_trunc('day', at) = day"]
)
def test_other_conditions_of_such_keys_do_not_narrow(condition: str) -> None:
    assert needed(condition) is None


WHOLE = whole_region(OTHERS).ranges


def needed(condition: str) -> list[Range] | None:
    """The ranges of the only region that a statement needs; None for all rows."""
    session = SessionContext()
    rows = pa.RecordBatch.from_pylist([], arrow_schema(OTHERS))
    session.register_record_batches("t", [[rows]])
    frame = session.sql(f"SELECT v FROM t WHERE {condition}")
    regions = find_regions(OTHERS, frame)
    if regions is None:
        return None
    (region,) = regions
    return [*region.ranges]


def files_read(engine_and_openers: tuple[QueryEngine, dict], statement: str) -> dict[str, int]:
    engine, openers = engine_and_openers
    run = StatementRun(statement, engine)
    try:
        run.frame(openers, narrow=True)
        return {name: len(plan.paths) for name, plan in run.plans.items()}
    finally:
        run.release()


@pytest.mark.parametrize(
    ("condition", "is_narrowed"),
    [
        ("i = 3", True),
        ("3 = i", True),
        ("i IN (1, 2, 3)", True),
        ("i IN (1, 2, 3, 4, 5, 6)", True),
        ("i BETWEEN 1 AND 2", True),
        ("i > 7", True),
        ("i < -8", True),
        ("NOT (i <= 7 OR v = 1)", True),
        ("i = 1 OR i = 9", True),
        ("\"Text\" LIKE '😀x%'", True),
        ("b = x'05'", True),
        ("i = 1 AND abs(v) > 1", True),
        ("i = 1 AND i = 2", True),
        ("i IN (SELECT 3)", False),
        ("i = 1 OR v = 1", False),
        ("i <> 3", False),
        ("abs(i) = 3", False),
        ("i + 1 = 3", False),
        ("v = 1", False),
        ("\"Text\" ILIKE '😀x%'", False),
        ("\"Text\" ~* '^😀x'", False),
    ],
)
def test_predicates_exclude_files(
    engine_and_openers: tuple[QueryEngine, dict], condition: str, is_narrowed: bool
) -> None:
    all_rows = files_read(engine_and_openers, "SELECT * FROM t")["t"]
    read = files_read(engine_and_openers, f"SELECT v FROM t WHERE {condition}")["t"]
    assert (read < all_rows) == is_narrowed


def test_table_named_twice_is_read_for_both_predicates(
    engine_and_openers: tuple[QueryEngine, dict],
) -> None:
    one = files_read(engine_and_openers, "SELECT v FROM t WHERE i = 3")["t"]
    other = files_read(engine_and_openers, "SELECT v FROM t WHERE i = -9")["t"]
    union = "SELECT v FROM t WHERE i = 3 UNION ALL SELECT v FROM t WHERE i = -9"
    assert max(one, other) < files_read(engine_and_openers, union)["t"] <= one + other
    hidden = "SELECT EXISTS(SELECT 1 FROM t WHERE i = -9) FROM t WHERE i = 3"
    assert files_read(engine_and_openers, hidden)["t"] >= files_read(engine_and_openers, union)["t"]


def test_explanation_counts_read_and_excluded_files(
    engine_and_openers: tuple[QueryEngine, dict],
) -> None:
    engine, openers = engine_and_openers
    statement = "SELECT count(*) FROM t JOIN u ON t.s = u.s WHERE t.i = 3"
    explanation = explain_sql(statement, openers, engine)
    t, u = explanation.reads
    assert (t.table, u.table, explanation.rows) == ("t", "u", 1)
    assert 0 < t.files < t.files_of
    assert 0 < t.leaves < t.leaves_of
    assert 0 < t.bytes_read <= t.bytes < t.bytes_of
    assert (u.files, u.leaves, u.bytes) == (u.files_of, u.leaves_of, u.bytes_of)
    empty = explain_sql("SELECT * FROM t WHERE i = 3 AND i = 4", openers, engine)
    assert (empty.rows, empty.reads[0].files, empty.reads[0].bytes_read) == (0, 0, 0)
    with pytest.raises(InvalidRequestError):
        explain_sql("SELECT nope FROM t", openers, engine)
