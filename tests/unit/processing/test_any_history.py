"""A table returns the same rows after any history of ingests, compactions and splits."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.write.partitioned import FileStrategy
from sleeper.partitions.region import Region
from sleeper.processing.model import IteratorCall, Processing
from sleeper.processing.text import parse_aggregations, parse_filters
from sleeper.query.engine import QueryEngine, QuerySettings, QueryTable
from sleeper.query.request import Query, make_key_regions, make_range_region
from sleeper.query.run import run_query
from sleeper.query.sql.statement import run_sql
from sleeper.schema.model import DecimalType, Field, MapType, PrimitiveType, Schema
from tests.clock import START_MS
from tests.examples import examples
from tests.tables.data_table import DataTable
from tests.unit.processing.expected import Row, comparable, expected_rows

P = PrimitiveType
KEYS_MAX = 6
AGE_MS = 1000
AGGREGATING = Schema(
    (Field("Key A", P.INT),),
    (Field("time", P.LONG),),
    (
        Field("int sum", P.INT, nullable=True),
        Field("long", P.LONG),
        Field("least", P.DOUBLE, nullable=True),
        Field("greatest", P.FLOAT),
        Field("text", P.STRING, nullable=True),
        Field("raw", P.BYTE_ARRAY),
        Field("flag", P.BOOLEAN, nullable=True),
        Field("day", P.DATE),
        Field("seen", P.TIMESTAMP),
        Field("money", DecimalType(38, 2), nullable=True),
        Field("counts", MapType(P.STRING, P.INT), nullable=True),
        Field("lows", MapType(P.LONG, P.LONG)),
        Field("highs", MapType(P.BYTE_ARRAY, P.INT), nullable=True),
    ),
)
AGGREGATIONS = Processing(
    parse_filters(f"ageOff(time,{AGE_MS})"),
    parse_aggregations(
        "sum(int sum),sum(long),min(least),max(greatest),min(text),max(raw),max(flag),min(day),"
        "max(seen),max(money),map_sum(counts),map_min(lows),map_max(highs)"
    ),
)
FILTERING = Schema(
    (Field("Key A", P.INT),), (), (Field("seen", P.TIMESTAMP, nullable=True), Field("v", P.INT))
)
FILTERS = Processing(parse_filters(f"ageOff(seen,{AGE_MS})"))

NUMBERS = Schema(
    (Field("Key A", P.INT),),
    (Field("time", P.LONG),),
    (Field("v", P.INT, nullable=True), Field("long", P.LONG)),
)
SUMS = Processing((), parse_aggregations("sum(v),sum(long)"))

keys = st.integers(0, KEYS_MAX)
times = st.sampled_from([START_MS + item for item in (-1500, -1000, -999, -400, 0)])
ints = st.one_of(st.integers(-3, 3), st.sampled_from([2**31 - 1, -(2**31)]))
longs = st.one_of(st.integers(-3, 3), st.sampled_from([2**63 - 1, -(2**63)]))
floats = st.sampled_from([0.0, -0.0, 1.5, -2.0, float("nan"), float("inf"), -float("inf")])
texts = st.text("aé😀", max_size=2)
blobs = st.binary(max_size=1)
stamps = times.map(lambda ms: datetime.fromtimestamp(ms / 1000, UTC))


def maps(of_keys: st.SearchStrategy, values: st.SearchStrategy) -> st.SearchStrategy:
    # A key may come twice: Arrow does not mind.
    return st.lists(st.tuples(of_keys, values), max_size=3)


aggregating_rows = st.tuples(
    keys,
    times,
    st.none() | ints,
    longs,
    st.none() | floats,
    floats,
    st.none() | texts,
    blobs,
    st.none() | st.booleans(),
    st.sampled_from([date(1969, 1, 1), date(2026, 1, 1)]),
    stamps,
    st.none() | st.sampled_from([Decimal("-1.00"), Decimal(10**35)]),
    st.none() | maps(texts, ints),
    maps(longs, longs),
    st.none() | maps(blobs, ints),
)
number_rows = st.tuples(keys, times, st.none() | ints, longs)
# Equal in the keys, equal in the rest: which of the two is the latest does not matter.
key_only_rows = st.tuples(keys, times).map(lambda key: (*key, key[0], key[1] - START_MS))
filtering_rows = st.tuples(keys, st.none() | stamps, ints)
steps = st.lists(st.tuples(st.sampled_from("iiiiccsta"), st.integers(0, 10**6)), max_size=8)


Expectation = Callable[[list[Row], int], list[Row]]


def expectation(schema: Schema, processing: Processing) -> Expectation:
    return lambda rows, now_ms: expected_rows(rows, schema, processing, now_ms)


def latest(rows: list[Row], now_ms: int) -> list[Row]:
    """The only row of each row key with its greatest sort key."""
    return list({row[0]: row for row in sorted(rows)}.values())


def young(rows: list[Row], now_ms: int) -> list[Row]:
    return sorted((comparable(r) for r in rows if r[1] > now_ms - AGE_MS), key=repr)


@dataclass
class History:
    """A real table, and beside it the rows that were put in, as each version had them."""

    table: DataTable
    expect: Expectation
    rows: list[Row] = field(default_factory=list)
    versions: dict[int, tuple[list[Row], int]] = field(default_factory=dict)

    def step(self, kind: str, choice: int, data: st.DataObject, rows: st.SearchStrategy) -> None:
        previous = self.table.number()
        if kind == "i":
            self._ingest(data.draw(st.lists(rows, min_size=1, max_size=8)), choice)
        elif kind == "s":
            self._split(choice)
        elif kind == "t":
            self.table.clock.now_ms += choice % 400
        else:
            for result in self.table.compact(full=kind == "a" or choice % 2 == 0):
                assert not isinstance(result, Exception), result
        for number in range(previous + 1, self.table.number() + 1):
            self.versions[number] = (list(self.rows), self.table.clock.now_ms)

    def _ingest(self, rows: list[Row], choice: int) -> None:
        """A file for each leaf, one for all of them, or one of a partition that was split."""
        with self.table.store.reading() as state:
            partitions = list(state.partitions.all())
        target = [None, *partitions][choice % (len(partitions) + 1)]
        if target is not None:
            rows = [r for r in rows if target.region.contains(r[:1])]
        if rows:
            strategy = list(FileStrategy)[choice % 2]
            self.table.ingest_sorted(
                arrow_table(self.table.schema, rows), strategy, target.id if target else None
            )
            self.rows += rows

    def _split(self, choice: int) -> None:
        leaves = self.table.leaves()
        leaf, point = leaves[choice % len(leaves)], choice % KEYS_MAX
        within = leaf.region.ranges[0]
        if within.contains(point) and point != within.min:
            self.table.split_at(leaf.id, point)

    def check(self, data: st.DataObject) -> None:
        now_ms = self.table.clock.now_ms
        self._check_read(Query(), self.rows, now_ms)
        low, high = sorted(data.draw(st.lists(keys, min_size=2, max_size=2, unique=True)))
        schema = self.table.schema
        by_range = (make_range_region(schema, low, high),)
        self._check_read(Query(by_range), self.rows, now_ms)
        self._check_read(Query(make_key_regions(schema, [[low], [high]])), self.rows, now_ms)
        for version in sorted(self.versions)[-3:]:
            rows, then_ms = self.versions[version]
            self._check_read(Query(by_range, version=version), rows, then_ms)
        self._check_sql(now_ms, low)

    def _check_read(self, query: Query, rows: list[Row], now_ms: int) -> None:
        table = self.table
        expected = self._expected([r for r in rows if _is_asked(query.regions, r)], now_ms)
        result = self._read(query)
        assert result == expected
        columns = tuple(f.name for f in reversed(table.schema.fields))[:-1]
        narrow = self._read(Query(query.regions, columns, version=query.version), in_order=True)
        assert _sorted([r[::-1] for r in narrow]) == _sorted([r[1:] for r in expected])
        few = self._read(Query(query.regions, limit=2, version=query.version), in_order=True)
        assert len(few) == min(2, len(expected))
        assert all(row in expected for row in few)

    def _check_sql(self, now_ms: int, key: int) -> None:
        expected = self._expected(self.rows, now_ms)
        assert self._sql("SELECT * FROM t") == _sorted(expected)
        assert self._sql("SELECT count(*) FROM t") == [(len(expected),)]
        rows_of_key = [r for r in expected if r[0] == key]
        assert self._sql(f'SELECT * FROM t WHERE "Key A" = {key}') == _sorted(rows_of_key)
        place = [f.name for f in self.table.schema.fields].index(
            "v" if self.table.schema is FILTERING else "long"
        )
        name = self.table.schema.fields[place].name
        large = [r for r in expected if r[place] > 1]
        assert self._sql(f'SELECT * FROM t WHERE "{name}" > 1') == _sorted(large)

    def _expected(self, rows: list[Row], now_ms: int) -> list[Row]:
        return self.expect(rows, now_ms)

    def _read(self, query: Query, in_order: bool = False) -> list[Row]:
        rows = list_rows(run_query(query, self._query_table(), self._engine()).read_all())
        aggregates = bool(self.table.processing.aggregations)
        return rows if in_order or aggregates else sorted(rows, key=repr)

    def _sql(self, statement: str) -> list[Row]:
        with run_sql(statement, {"t": self._query_table}, self._engine()) as result:
            return _sorted(list_rows(result.read_all()))

    def _query_table(self) -> QueryTable:
        return QueryTable("t", self.table.store, self.table.root)

    def _engine(self) -> QueryEngine:
        return QueryEngine(QuerySettings(self.table.engine), self.table.clock)


def _is_asked(regions: Sequence[Region] | None, row: Row) -> bool:
    return regions is None or any(region.contains(row[:1]) for region in regions)


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def arrow_table(schema: Schema, rows: list[Row]) -> pa.Table:
    kind = arrow_schema(schema)
    sorted_rows = sorted(rows, key=lambda row: row[: len(schema.keys)])
    columns = zip(*sorted_rows, strict=True)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, kind, strict=True)]
    return pa.table(arrays, schema=kind)


def list_rows(table: pa.Table) -> list[Row]:
    columns: list[list[Any]] = [c.to_pylist() for c in table.columns]
    return [comparable(row) for row in zip(*columns, strict=True)]


def run_history(
    data: st.DataObject,
    schema: Schema,
    processing: Processing,
    rows: st.SearchStrategy,
    expect: Expectation | None = None,
) -> None:
    """`expect` gives the table's rows of all rows that came in; else the processing says them."""
    with tempfile.TemporaryDirectory() as folder:
        files_max = data.draw(st.sampled_from([2, 64]))
        table = DataTable(
            Path(folder),
            schema,
            sorted(data.draw(st.sets(st.integers(1, KEYS_MAX), max_size=2))),
            engine_changes={"merge_files_max": files_max},
            processing=processing,
        )
        table.set(sleeper__table__compaction__strategy__class="BasicCompactionStrategy")
        table.set(sleeper__table__compaction__files__batch__size=2)
        history = History(table, expect or expectation(schema, processing))
        for kind, choice in data.draw(steps):
            history.step(kind, choice, data, rows)
        history.check(data)
        table.close()


@settings(max_examples=examples(5), deadline=None)
@given(st.data())
def test_an_aggregating_table_gives_the_answer_of_plain_python(data: st.DataObject):
    run_history(data, AGGREGATING, AGGREGATIONS, aggregating_rows)


@settings(max_examples=examples(5), deadline=None)
@given(st.data())
def test_a_filtering_table_gives_the_answer_of_plain_python(data: st.DataObject):
    run_history(data, FILTERING, FILTERS, filtering_rows)


@settings(max_examples=examples(3), deadline=None)
@given(st.data())
def test_a_table_with_sum_by_key_gives_the_sums_of_plain_python(data: st.DataObject):
    processing = Processing(iterator=IteratorCall("SumByKey"))
    run_history(data, NUMBERS, processing, number_rows, expectation(NUMBERS, SUMS))


@settings(max_examples=examples(3), deadline=None)
@given(st.data())
def test_a_table_with_latest_by_sort_key_gives_the_latest_of_plain_python(data: st.DataObject):
    processing = Processing(iterator=IteratorCall("LatestBySortKey"))
    run_history(data, NUMBERS, processing, key_only_rows, latest)


@settings(max_examples=examples(3), deadline=None)
@given(st.data())
def test_a_table_with_age_off_by_field_keeps_the_young_of_plain_python(data: st.DataObject):
    processing = Processing(iterator=IteratorCall("AgeOffByField", f"time,{AGE_MS}"))
    run_history(data, NUMBERS, processing, number_rows, young)


def test_times_are_compared_to_the_microsecond():
    limit = datetime.fromtimestamp(START_MS / 1000, UTC) - timedelta(milliseconds=AGE_MS)
    just_young = limit + timedelta(microseconds=1)
    with tempfile.TemporaryDirectory() as folder:
        table = DataTable(Path(folder), FILTERING, processing=FILTERS)
        history = History(table, expectation(FILTERING, FILTERS))
        rows = [(1, limit, 1), (2, just_young, 2), (3, None, 3)]
        history.table.ingest_sorted(arrow_table(FILTERING, rows))
        result = history._read(Query(columns=("v",)))
        assert result == [(2,), (3,)]
        history.table.close()
