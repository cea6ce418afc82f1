"""Lazy frames of Polars over tables: what is pushed down, and rows that are the same without."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import sleeper
from sleeper.errors import NotFoundError
from sleeper.polars import scan_sleeper
from sleeper.polars.predicates import find_regions

DAY = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = {
    "rowKeyFields": [{"name": "city", "type": "StringType"}, {"name": "n", "type": "LongType"}],
    "sortKeyFields": [],
    "valueFields": [{"name": "v", "type": "DoubleType", "nullable": True}],
}
TIMES = {
    "rowKeyFields": [{"name": "at", "type": "TimestampType"}],
    "valueFields": [{"name": "v", "type": "LongType"}],
}
ROWS = pl.DataFrame(
    {
        "city": ["Accra", "Lima", "Lima", "Oslo", "Pune", "Oslo"],
        "n": [1, 1, 2, 7, -3, 8],
        "v": [1.0, None, 2.5, 3.0, 4.0, None],
    }
).sort("city", "n")


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sleeper.Instance]:
    folder = tmp_path_factory.mktemp("polars") / "instance"
    with sleeper.create_instance(folder) as opened:
        opened.create_table("t", SCHEMA, split_points=["M"]).ingest(ROWS)
        times = [DAY + timedelta(hours=each) for each in range(5)]
        opened.create_table("times", TIMES).ingest(pl.DataFrame({"at": times, "v": range(5)}))
        yield opened


CITY, N, V = pl.col("city"), pl.col("n"), pl.col("v")
NARROWING = [
    CITY == "Lima",
    pl.lit("Lima") == CITY,
    (CITY == "Oslo") & (N > 7),
    (N >= 2) & (V < 3.5) & (N != 7),
    N < 7,
    N <= 1,
    (CITY == "Lima") | (N == -3),
    CITY.is_in(["Accra", "Pune", "none"]),
    N.is_in([1, 8]),
    N.is_between(1, 7),
    N.is_between(1, 7, closed="none"),
    N.is_between(1, 7, closed="left"),
    N.is_between(1, 7, closed="right"),
    CITY < "Accra",
    CITY.is_in([]),
    (N > 5) & (N < 3),
]
OTHERS = [
    V > 2.0,
    CITY.str.starts_with("L"),
    ~(CITY == "Lima"),
    (CITY == "Lima") | V.is_null(),
    N >= 1.5,
    N + 1 == 2,
    N == V,
    pl.lit(None, dtype=pl.String) == CITY,
    CITY.is_in([None, "Lima"]),
    N > 2**70,
]


@pytest.mark.parametrize("predicate", [*NARROWING, *OTHERS], ids=str)
def test_rows_are_those_that_polars_selects(instance: sleeper.Instance, predicate: pl.Expr) -> None:
    scanned = scan_sleeper(instance, "t").filter(predicate)
    assert_frame_equal(scanned.collect(), ROWS.filter(predicate))
    assert_frame_equal(scanned.select("v").collect(), ROWS.filter(predicate).select("v"))
    assert_frame_equal(
        scanned.head(1).select(V, N).collect(), ROWS.filter(predicate).head(1).select(V, N)
    )


@pytest.mark.parametrize("predicate", NARROWING, ids=str)
def test_comparisons_with_keys_narrow_the_regions(
    instance: sleeper.Instance, predicate: pl.Expr
) -> None:
    regions = find_regions(instance.table("t").schema, ROWS.schema, predicate)
    assert regions is not None
    for city, n in ROWS.filter(predicate).select("city", "n").iter_rows():
        assert any(region.contains((city, n)) for region in regions)


@pytest.mark.parametrize("predicate", OTHERS, ids=str)
def test_other_predicates_do_not_narrow(instance: sleeper.Instance, predicate: pl.Expr) -> None:
    assert find_regions(instance.table("t").schema, ROWS.schema, predicate) is None


def test_times_are_compared_as_polars_does(instance: sleeper.Instance) -> None:
    scan, at = scan_sleeper(instance, "times"), pl.col("at")
    schema, types = instance.table("times").schema, scan.collect_schema()
    end = DAY + timedelta(hours=2)
    same = at < pl.select(pl.lit(end).cast(types["at"])).item()
    finer = at < pl.lit(end).cast(pl.Datetime("ns", "UTC"))
    assert find_regions(schema, types, same) is not None
    assert find_regions(schema, types, finer) is None
    for predicate in (same, finer):
        assert_frame_equal(scan.filter(predicate).collect(), scan.collect().filter(predicate))


def test_only_the_needed_columns_regions_and_rows_are_queried(
    instance: sleeper.Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[dict[str, object]] = []
    query = sleeper.Table.query

    def record(table: sleeper.Table, **arguments: object) -> sleeper.Rowset:
        queries.append(arguments)
        return query(table, **arguments)  # type: ignore[arg-type]

    scan = scan_sleeper(instance, "t")
    monkeypatch.setattr(sleeper.Table, "query", record)
    assert scan.filter(CITY == "Lima").select("v").collect()["v"].to_list() == [None, 2.5]
    assert queries[0]["columns"] == ["city", "v"]
    (region,) = queries[0]["regions"]  # type: ignore[misc]
    assert region["city"]["min"] == "Lima"
    assert scan.head(2).collect().height == 2
    assert queries[1]["limit"] == 2
    assert scan.select(pl.len()).collect().item() == len(ROWS)
    assert len(queries[2]["columns"]) == 1  # type: ignore[arg-type]


def test_a_folder_is_opened_for_each_collection(tmp_path: Path) -> None:
    with sleeper.create_instance(tmp_path / "i") as instance:
        table = instance.create_table("t", SCHEMA)
        table.ingest(ROWS.head(2))
        version = table.version
        table.ingest(ROWS.tail(4))
    scan = scan_sleeper(tmp_path / "i", "t")
    assert_frame_equal(scan.collect(), ROWS)
    assert scan_sleeper(tmp_path / "i", "t", as_of=version).collect().height == 2
    with sleeper.open_instance(tmp_path / "i") as instance:
        instance.table("t").add_field("w", "LongType")
    assert_frame_equal(scan.collect(engine="streaming").sort("city", "n"), ROWS)
    with pytest.raises(NotFoundError):
        scan_sleeper(tmp_path / "i", "none")


def test_a_frame_of_a_field_that_was_widened_later_is_an_error(instance: sleeper.Instance) -> None:
    table = instance.create_table(
        "widened",
        {
            "rowKeyFields": [{"name": "k", "type": "LongType"}],
            "valueFields": [{"name": "v", "type": "IntType"}, {"name": "w", "type": "IntType"}],
        },
    )
    table.ingest(pl.DataFrame({"k": [1], "v": [1], "w": [1]}))
    scan = scan_sleeper(instance, "widened")
    table.widen_field("v", "LongType")
    table.ingest(pl.DataFrame({"k": [2], "v": [2**40], "w": [2]}))
    for frame in (scan, scan.filter(V > 0), scan.select(V.sum())):
        with pytest.raises(pl.exceptions.SchemaError, match="Int64"):
            frame.collect()
    assert scan.select(pl.col("w").sum()).collect().item() == 3
    assert scan_sleeper(instance, "widened").select(V.sum()).collect().item() == 2**40 + 1
