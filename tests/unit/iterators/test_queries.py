"""Iterators in reads: the table's, the query's, both in sequence, and checks of their output."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute
import pytest

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.merge.plan import merge
from sleeper.datafiles.merge.steps import TableIterators
from sleeper.errors import DataError, InvalidRequestError, UserCodeError
from sleeper.partitions.region import Region
from sleeper.processing.model import IteratorCall, Processing
from sleeper.processing.text import parse_aggregations, parse_filters
from sleeper.query.engine import QueryEngine, QuerySettings, QueryTable
from sleeper.query.request import Query, make_range_region
from sleeper.query.run import run_query
from sleeper.query.sql.explain import explain_sql
from sleeper.query.sql.statement import run_sql
from sleeper.schema.model import Field, PrimitiveType, Schema
from tests.clock import START_MS
from tests.tables.data_table import DataTable
from tests.unit.iterators import failing
from tests.unit.iterators.failing import make_class_iterators, make_iterators
from tests.unit.processing.test_any_history import arrow_table, list_rows

P = PrimitiveType
SCHEMA = Schema(
    (Field("key", P.INT),),
    (Field("time", P.LONG),),
    (Field("n", P.LONG), Field("m", P.LONG), Field("who", P.STRING)),
)
SUMMED = Schema(SCHEMA.row_keys, SCHEMA.sort_keys, SCHEMA.values[:2])
MINE = Processing(iterator=IteratorCall("Mine"))


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    tables: list[DataTable] = []

    def make_table(schema: Schema = SCHEMA, **more: Any) -> DataTable:
        tables.append(DataTable(tmp_path, schema, **more))
        return tables[0]

    yield make_table
    for table in tables:
        table.close()


def fill(table: DataTable, *files: list[tuple]) -> None:
    for rows in files:
        table.ingest_sorted(arrow_table(table.schema, rows), row_group_rows=1000)


def many(table: DataTable, count: int = 20_000) -> None:
    rows = pa.table(
        [
            pa.array(range(count), pa.int32()),
            pa.array([START_MS] * count, pa.int64()),
            pa.array(range(count)),
            pa.array(range(count)),
            pa.array(["x"] * count),
        ],
        schema=arrow_table(SCHEMA, [(0, 0, 0, 0, "")]).schema,
    )
    table.ingest_sorted(rows)


def make_query_table(table: DataTable, iterators: TableIterators | None = None) -> QueryTable:
    return QueryTable("t", table.store, table.root, iterators or TableIterators("t"))


def engine(table: DataTable) -> QueryEngine:
    return QueryEngine(QuerySettings(table.engine), table.clock)


def read(table: DataTable, iterators: TableIterators | None = None, **more: Any) -> list:
    return list_rows(
        run_query(Query(**more), make_query_table(table, iterators), engine(table)).read_all()
    )


def sql(table: DataTable, statement: str, iterators: TableIterators | None = None) -> list:
    with run_sql(
        statement, {"t": lambda: make_query_table(table, iterators)}, engine(table)
    ) as result:
        return list_rows(result.read_all())


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (failing.raises, r"at key \(8191, \d+\): KeyError: 'no such thing'"),
        (failing.exits, r"at key \(0, \d+\): SystemExit: 3"),
        (failing.interrupts, r"at key \(0, \d+\): KeyboardInterrupt"),
        (failing.reverses, r"at key \(\d+, \d+\): row follows key .*expected rows in"),
        (failing.swaps_batches, r"row follows key \(19999, \d+\) \(expected rows in"),
        (failing.drops_a_column, r"columns key, time, n, m \(expected key, time, n, m, who\)"),
        (failing.changes_a_type, r"field 'key' is int32 that may be null \(expected int32\)"),
        (failing.gives_nulls, "field 'who': null, but the field is not nullable"),
        (failing.gives_rows, r"invalid output: dict \(expected RecordBatch\)"),
        (failing.is_none, "TypeError: 'NoneType' object is not iterable"),
        (failing.ends_early, "it ended before the rows did"),
        (failing.reads_nothing, "it ended before the rows did"),
    ],
)
def test_an_iterators_violation_is_reported_with_its_name_and_key(
    make: Any, act: Any, reason: str
) -> None:
    table = make(processing=MINE)
    many(table)
    with pytest.raises(UserCodeError, match=f"^iterator 'Mine' on table 't'.*{reason}"):
        read(table, make_iterators(act))
    with pytest.raises(UserCodeError, match=reason):
        sql(table, "SELECT count(*) FROM t", make_iterators(act))


def test_a_group_is_in_one_batch_and_fails_if_too_long(make: Any) -> None:
    table = make(processing=MINE)
    fill(table, *[[(1, 5, n, m, "x") for m in range(9_000)] for n in range(2)])
    fill(table, [(0, 1, 0, 0, ""), (2, 1, 0, 0, "")])
    sizes = []

    def look(batches: Any, _: str) -> Any:
        for batch in batches:
            sizes.append((batch.num_rows, batch.column(0)[-1].as_py()))
            yield batch

    assert len(read(table, make_iterators(look))) == 18_002
    assert sum(n for n, _ in sizes) == 18_002
    assert [last for _, last in sizes].count(1) == 1
    with pytest.raises(
        UserCodeError,
        match=r"at key \(1, 5\): there are more than 17999 rows of this key, which sleeper\.table",
    ):
        read(table, make_iterators(look, rows_max=17_999))
    assert len(read(table, make_iterators(look, rows_max=18_000))) == 18_002


def test_a_damaged_file_is_not_the_iterators_fault(make: Any) -> None:
    table = make(processing=MINE)
    many(table)
    path = Path(table.root.url_of(table.files()[0].path))
    content = bytearray(path.read_bytes())
    content[len(content) // 3 : len(content) // 2] = bytes(len(content) // 2 - len(content) // 3)
    path.write_bytes(content)
    for act in (failing.keeps, failing.gives_up_below):
        with pytest.raises(DataError):
            read(table, make_iterators(act))


def test_stages_run_in_order(make: Any) -> None:
    """Table: filter, iterator; query: filter, aggregation, iterator."""
    old, young = START_MS - 5000, START_MS - 100
    processing = Processing(parse_filters("ageOff(time,4000)"), (), IteratorCall("SumByKey"))
    table = make(SUMMED, processing=processing)
    rows = [(1, young, 1, 10), (1, old, 2, 20), (2, young, 3, 30)]
    fill(table, rows, rows, [(1, START_MS, 9, 9)])
    assert read(table) == [(1, young, 2, 20), (1, START_MS, 9, 9), (2, young, 6, 60)]
    requested_processing = Processing(
        parse_filters("ageOff(n,9)"),
        parse_aggregations("max(n),min(m)"),
        IteratorCall("LatestBySortKey"),
    )
    table.clock.now_ms = START_MS
    latest = Processing((), requested_processing.aggregations, requested_processing.iterator)
    assert read(table, processing=latest) == [(1, START_MS, 9, 9), (2, young, 6, 60)]
    assert sql(table, "SELECT sum(n), count(*) FROM t") == [(17, 3)]


def test_a_query_aggregates_what_the_tables_iterator_made_equal(make: Any) -> None:
    """One that makes one row two is no good for a table, but the query's stages see its rows."""

    def doubles(batches: Any, _: str) -> Any:
        for batch in batches:
            yield batch.take(pa.array([i for i in range(batch.num_rows) for _ in range(2)]))

    table = make(SUMMED, processing=MINE)
    fill(table, [(k, 0, k, k) for k in range(100)])
    processing = Processing(
        parse_filters("ageOff(time,9000000000000)"), parse_aggregations("sum(n),max(m)")
    )
    assert read(table, make_iterators(doubles), processing=processing) == [
        (k, 0, 2 * k, k) for k in range(100)
    ]
    assert len(read(table, make_iterators(doubles))) == 200
    filtered = Processing(processing.filters)
    assert len(read(table, make_iterators(doubles), processing=filtered)) == 200


def test_an_aggregating_table_may_have_an_iterator(make: Any) -> None:
    processing = Processing(
        (), parse_aggregations("sum(n),sum(m)"), IteratorCall("LatestBySortKey")
    )
    table = make(SUMMED, processing=processing)
    fill(table, [(1, 0, 1, 1), (1, 1, 2, 2)], [(1, 1, 3, 3), (2, 0, 1, 1)])
    assert read(table) == [(1, 1, 5, 5), (2, 0, 1, 1)]


def test_an_iterator_receives_all_rows_of_a_key_in_any_query(make: Any) -> None:
    """Limit, columns and predicates on anything but row keys stay above it."""
    table = make(processing=Processing(iterator=IteratorCall("LatestBySortKey")), split_points=[5])
    fill(table, [(k, t, t, k, "x") for k in range(10) for t in range(3)])
    fill(table, [(k, 7, 100, k, "y") for k in range(0, 10, 2)])
    even = [(k, 7, 100, k, "y") for k in range(0, 10, 2)]
    odd = [(k, 2, 2, k, "x") for k in range(1, 10, 2)]
    assert read(table) == sorted(even + odd)
    assert read(table, limit=3) == sorted(even + odd)[:3]
    assert read(table, columns=("who", "key"), limit=1) == [("y", 0)]
    assert read(table, regions=(make_range_region(SCHEMA, 4, 7),)) == sorted(even + odd)[4:7]
    assert sql(table, "SELECT key FROM t WHERE time < 5 ORDER BY key") == [
        (k,) for k in range(1, 10, 2)
    ]
    assert sql(table, "SELECT who FROM t WHERE key = 4") == [("y",)]
    assert sql(table, "SELECT count(*) FROM t a JOIN t b ON a.key = b.key") == [(10,)]
    assert sql(table, "SELECT count(*) FROM t WHERE key > 100") == [(0,)]
    assert sql(table, "SELECT 1 FROM t WHERE n < 0") == []


class Narrow:
    """An iterator that records the fields of its input."""

    seen: ClassVar[list[list[str]]] = []

    def __init__(self, schema: pa.Schema, *_: Any) -> None:
        self.seen.append(schema.names)

    @staticmethod
    def required_fields(config: str) -> list[str]:
        return [config] if config else []

    def __call__(self, batches: Any) -> Any:
        return batches


@pytest.mark.parametrize(
    ("config", "columns", "fields"),
    [
        ("m", ("n",), ["key", "time", "n", "m"]),
        ("", ("who",), ["key", "time", "who"]),
        ("", None, ["key", "time", "n", "m", "who"]),
    ],
)
def test_unneeded_columns_are_not_read(
    make: Any, config: str, columns: tuple[str, ...] | None, fields: list[str]
) -> None:
    table = make()
    fill(table, [(1, 2, 3, 4, "x")])
    processing = Processing(iterator=IteratorCall("Mine", config))
    Narrow.seen.clear()
    (row,) = read(table, make_class_iterators(Narrow), columns=columns, processing=processing)
    assert row == tuple({"n": 3, "who": "x"}[c] for c in columns or ()) or columns is None
    assert Narrow.seen[-1] == fields
    with pytest.raises(InvalidRequestError, match="no field 'nix'"):
        read(
            table,
            make_class_iterators(Narrow),
            processing=Processing(iterator=IteratorCall("Mine", "nix")),
        )


def test_a_query_with_a_wrong_iterator_is_refused(make: Any) -> None:
    table = make()
    fill(table, [(1, 2, 3, 4, "x")])
    for call, reason in (
        (IteratorCall("Nope"), "no iterator 'Nope' is registered .expected one of AgeOffByField"),
        (
            IteratorCall("SumByKey"),
            "iterator 'SumByKey': field 'who' is string: expected an integer",
        ),
        (IteratorCall("AgeOffByField", "x"), "iterator 'AgeOffByField': config 'x' is not"),
    ):
        with pytest.raises(InvalidRequestError, match=reason):
            read(table, processing=Processing(iterator=call))


def test_a_table_with_a_missing_wheel_is_reported(make: Any) -> None:
    table = make(processing=Processing(iterator=IteratorCall("Gone")))
    fill(table, [(1, 2, 3, 4, "x")])
    with pytest.raises(InvalidRequestError, match="no iterator 'Gone' is registered"):
        read(table)
    with pytest.raises(InvalidRequestError, match="no iterator 'Gone' is registered"):
        sql(table, "SELECT 1 FROM t")


def test_now_is_the_versions_time_for_an_old_version(make: Any) -> None:
    table = make(processing=Processing(iterator=IteratorCall("AgeOffByField", "time,1000")))
    fill(table, [(1, START_MS, 0, 0, "x")])
    version = table.number()
    table.clock.now_ms += 5000
    assert read(table) == []
    assert sql(table, "SELECT * FROM t") == []
    assert len(read(table, version=version)) == 1


def test_closing_a_result_early_closes_the_iterator(make: Any) -> None:
    table = make(processing=MINE)
    many(table)
    closed_batches = []

    def record_batches(batches: Any, _: str) -> Any:
        try:
            yield from batches
        finally:
            closed_batches.append(True)

    result = run_query(
        Query(), make_query_table(table, make_iterators(record_batches)), engine(table)
    )
    next(result)
    result.close()
    assert closed_batches == [True]
    assert len(read(table, make_iterators(record_batches), limit=5)) == 5
    assert closed_batches == [True, True]


def test_regions_still_narrow_files_below_an_iterator(make: Any) -> None:
    table = make(processing=Processing(iterator=IteratorCall("LatestBySortKey")), split_points=[50])
    fill(table, [(k, 0, 0, 0, "x") for k in range(100)])
    scanned: list[tuple[Region, ...] | None] = []
    inner = merge

    def spy(request: Any, *rest: Any) -> Any:
        scanned.extend(item.regions for item in request.inputs)
        return inner(request, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sleeper.datafiles.merge.plan.merge", spy)
        assert len(read(table, regions=(make_range_region(SCHEMA, 3, 5),))) == 2
        assert sql(table, "SELECT count(*) FROM t WHERE key = 7") == [(1,)]
    assert len(scanned) == 2
    assert None not in scanned


@pytest.mark.parametrize("end", ["read", "closed", "dropped", "failed", "explained"])
def test_rows_written_for_a_statement_are_deleted_with_it(make: Any, end: str) -> None:
    table = make(processing=MINE)
    many(table)
    openers = {"t": lambda: make_query_table(table, make_iterators(failing.keeps))}
    if end == "explained":
        (reads,) = explain_sql("SELECT sum(n) FROM t", openers, engine(table)).reads
        assert (reads.files, reads.bytes_read > 0) == (1, True)
    elif end == "failed":
        with pytest.raises(InvalidRequestError, match="invalid SQL"):
            run_sql("SELECT nix FROM t WHERE key IN (SELECT nix FROM t)", openers, engine(table))
    else:
        result = run_sql("SELECT * FROM t", openers, engine(table))
        assert len(list(table.engine.spill_folder.glob("sql-*"))) == 1
        if end == "read":
            assert result.read_all().num_rows == 20_000
        elif end == "closed":
            result.close()
        else:
            del result
    assert list(table.engine.spill_folder.glob("*.parquet")) == []


def test_iterators_see_json_as_text(make: Any) -> None:
    schema = Schema((Field("k", P.LONG),), (), (Field("doc", P.JSON, nullable=True),))
    table = make(schema)
    docs = pa.array(["1.10", None]).cast(pa.json_())
    table.ingest_sorted(pa.table([pa.array([1, 2]), docs], schema=arrow_schema(schema)))
    outputs = ["[1]"]

    def replace_texts(batches: Iterator[pa.RecordBatch], _: str) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            assert batch.column("doc").type == pa.string()
            texts = pa.array(outputs * batch.num_rows)
            yield batch.set_column(1, batch.schema.field("doc"), texts)

    query_table = make_query_table(table, make_iterators(replace_texts))
    rows = run_query(Query(processing=MINE), query_table, engine(table)).read_all()
    assert rows.column("doc").type == pa.json_()
    assert rows.column("doc").to_pylist() == ["[1]", "[1]"]
    outputs[0] = "x"
    with pytest.raises(UserCodeError, match="invalid output: field 'doc': not JSON"):
        run_query(Query(processing=MINE), query_table, engine(table)).read_all()
