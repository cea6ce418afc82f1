"""The model's meaning of latest rows, filters, aggregations and fields that were added."""

from dataclasses import replace

from simulation.model.visible import Chunk, StoredRow, visible_rows
from sleeper.processing.field_changes import AddField, TableShape, WidenField
from sleeper.processing.model import NO_PROCESSING, AgeOff, Aggregation, AggregationOp, Processing
from sleeper.schema.model import Field, LatestRows, MapType, PrimitiveType, Schema

LONG = PrimitiveType.LONG
SCHEMA = Schema((Field("k", LONG),), (), (Field("v", LONG, nullable=True),))


def chunk(number: int, *rows: tuple[object, ...], schema: Schema = SCHEMA) -> Chunk:
    return Chunk(number, f"job-{number}", schema, tuple(StoredRow(row) for row in rows))


def test_the_newest_row_of_a_key_is_that_of_the_last_job_and_there_the_last() -> None:
    latest = replace(SCHEMA, latest=LatestRows())
    chunks = [chunk(2, (1, 20), (1, 21)), chunk(1, (1, 10), (2, 10))]
    assert sorted(visible_rows(chunks, latest, NO_PROCESSING, 0)) == [(1, 21), (2, 10)]


def test_the_newest_row_by_a_field_has_its_largest_value() -> None:
    schema = Schema((Field("k", LONG),), (), (Field("v", LONG),), LatestRows("v"))
    chunks = [chunk(1, (1, 9), schema=schema), chunk(2, (1, 3), schema=schema)]
    assert visible_rows(chunks, schema, NO_PROCESSING, 0) == [(1, 9)]


def test_a_tombstone_hides_older_rows_of_its_key_only() -> None:
    latest = replace(SCHEMA, latest=LatestRows())
    deleting = Chunk(2, "job-2", SCHEMA, (StoredRow((1, None), is_tombstone=True),))
    chunks = [chunk(1, (1, 10), (2, 10)), deleting]
    assert visible_rows(chunks, latest, NO_PROCESSING, 0) == [(2, 10)]
    later = [*chunks, chunk(3, (1, 30))]
    assert sorted(visible_rows(later, latest, NO_PROCESSING, 0)) == [(1, 30), (2, 10)]


def test_a_sum_wraps_and_ignores_nulls() -> None:
    processing = Processing(aggregations=(Aggregation(AggregationOp.SUM, "v"),))
    rows = [chunk(1, (1, 2**63 - 1), (2, None)), chunk(2, (1, 1), (1, None), (2, None))]
    assert visible_rows(rows, SCHEMA, processing, 0) == [(1, -(2**63)), (2, None)]


def test_maps_are_combined_key_by_key() -> None:
    kind = MapType(PrimitiveType.STRING, LONG)
    schema = Schema((Field("k", LONG),), (), (Field("m", kind),))
    processing = Processing(aggregations=(Aggregation(AggregationOp.MAP_MAX, "m"),))
    rows = [chunk(1, (1, (("a", 1), ("b", 5))), (1, (("a", 3),)), schema=schema)]
    assert visible_rows(rows, schema, processing, 0) == [(1, (("a", 3), ("b", 5)))]


def test_a_row_ages_off_at_its_age_and_without_a_time_never() -> None:
    processing = Processing(filters=(AgeOff("v", 100),))
    rows = [chunk(1, (1, 899), (2, 900), (3, 901), (4, None))]
    assert visible_rows(rows, SCHEMA, processing, 1000) == [(3, 901), (4, None)]


def test_rows_of_earlier_files_have_the_default_of_an_added_field() -> None:
    shape = TableShape(SCHEMA, NO_PROCESSING, 2)
    added = AddField(Field("n", PrimitiveType.INT, default=7), after="k").apply(shape).schema
    assert visible_rows([chunk(1, (1, 10))], added, NO_PROCESSING, 0) == [(1, 7, 10)]
    widened = WidenField("n", LONG).apply(replace(shape, schema=added, last_id=3)).schema
    rows = [chunk(2, (1, None, 10), schema=added)]
    assert visible_rows(rows, widened, NO_PROCESSING, 0) == [(1, None, 10)]
