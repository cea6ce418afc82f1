"""Queries by key of a real table, compared with its rows in a list."""

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sleeper.datafiles.arrow import arrow_schema
from sleeper.errors import DataError, InvalidRequestError, StateMovedOnError
from sleeper.query.request import Query, make_key_regions, make_range_region
from sleeper.query.run import plan_table_query, run_query
from sleeper.schema.model import Field, ListType, PrimitiveType, Schema
from tests.tables.data_table import DataTable, Row, list_rows, make_engine

pytestmark = pytest.mark.usefixtures("holds_of_reads")

SCHEMA = Schema(
    (Field("id", PrimitiveType.STRING),),
    (Field("at", PrimitiveType.LONG),),
    (
        Field("blob", PrimitiveType.BYTE_ARRAY, nullable=True),
        Field("tags", ListType(PrimitiveType.STRING)),
    ),
)


def row(number: int, time: int = 0) -> Row:
    return (f"k{number:05d}", time, b"\x00\xff" if number % 3 else None, [f"t{number}"])


@pytest.fixture
def made(tmp_path: Path) -> DataTable:
    return DataTable(tmp_path, SCHEMA, ["k00100", "k00200"])


def holds(made: DataTable) -> int:
    return len(made.store.holds.all())


def test_rows_have_key_order_and_the_types_of_the_table(made: DataTable, tmp_path: Path):
    made.add_rows([row(n, 1) for n in range(0, 300, 2)])
    made.add_rows([row(n, 0) for n in range(0, 300, 3)])
    with run_query(Query(), made.query_table, make_engine(tmp_path)) as result:
        assert result.schema.equals(arrow_schema(SCHEMA))
        arrow_table = result.read_all()
    assert arrow_table.schema.equals(arrow_schema(SCHEMA))
    assert list_rows(arrow_table) == sorted(made.expected_rows, key=lambda r: r[:2])


def test_columns_have_the_requested_order(made: DataTable, tmp_path: Path):
    made.add_rows([row(n) for n in range(5)])
    result = run_query(Query(columns=("tags", "id")), made.query_table, make_engine(tmp_path))
    arrow_table = result.read_all()
    assert arrow_table.schema.names == ["tags", "id"]
    assert list_rows(arrow_table) == [(r[3], r[0]) for r in sorted(made.expected_rows)]


def test_limit_applies_to_all_leaves_together(made: DataTable, tmp_path: Path):
    made.add_rows([row(n) for n in range(0, 300, 10)])
    engine = make_engine(tmp_path)
    for limit in (0, 1, 10, 11, 29, 30, 31):
        result = run_query(Query(limit=limit), made.query_table, engine).read_all()
        assert list_rows(result) == sorted(made.expected_rows)[:limit]


def test_empty_table_and_absent_key_return_no_rows(made: DataTable, tmp_path: Path):
    engine = make_engine(tmp_path)
    assert run_query(Query(), made.query_table, engine).read_all().num_rows == 0
    made.add_rows([row(n) for n in range(5)])
    for regions in (make_key_regions(SCHEMA, [("k00001x",)]), ()):
        result = run_query(Query(regions), made.query_table, engine).read_all()
        assert result.num_rows == 0
        assert result.schema.equals(arrow_schema(SCHEMA))


def test_each_of_many_keys_is_found_once(made: DataTable, tmp_path: Path):
    for start in range(3):
        made.add_rows([row(n, start) for n in range(start, 300, 3)])
    expected = [(f"k{n:05d}",) for n in [*range(90, 210), *range(90, 110), 9999]]
    result = run_query(
        Query(make_key_regions(SCHEMA, expected)), made.query_table, make_engine(tmp_path)
    ).read_all()
    assert list_rows(result) == sorted(r for r in made.expected_rows if "k00090" <= r[0] < "k00210")


def test_many_files_are_merged_in_passes(made: DataTable, tmp_path: Path):
    for start in range(9):
        made.add_rows([row(n, start) for n in range(start, 300, 9)])
    engine = make_engine(tmp_path, merge_files_max=2)
    result = run_query(Query(), made.query_table, engine).read_all()
    assert list_rows(result) == sorted(made.expected_rows)


def test_version_returns_its_rows(made: DataTable, tmp_path: Path):
    made.add_rows([row(n) for n in range(0, 300, 2)])
    made.add_rows([row(n) for n in range(1, 300, 2)])
    for leaf in made.leaves():
        made.compact_partition(leaf)
    engine = make_engine(tmp_path)
    for version, rows in made.expected_versions.items():
        result = run_query(Query(version=version), made.query_table, engine).read_all()
        assert list_rows(result) == sorted(rows)


def test_version_below_the_horizon_is_refused_with_the_oldest(made: DataTable, tmp_path: Path):
    made.add_rows([row(n) for n in range(10)])
    made.compact_partition(made.leaves()[0])
    made.remove_unreferenced_files()
    with made.store.reading() as state:
        oldest = state.oldest_version
    with pytest.raises(InvalidRequestError, match=f"oldest readable version is {oldest}"):
        run_query(Query(version=2), made.query_table, make_engine(tmp_path))


def test_query_of_one_leaf_takes_no_hold(made: DataTable, tmp_path: Path):
    made.add_rows([row(n) for n in range(300)])
    with made.store.reading() as state:
        original = state.number
    region = make_range_region(SCHEMA, "k00010", "k00020")
    run_query(Query((region,)), made.query_table, make_engine(tmp_path)).read_all()
    with made.store.reading() as state:
        assert state.number == original


def test_query_of_several_leaves_holds_its_version(made: DataTable, tmp_path: Path):
    made.add_rows([row(n) for n in range(300)])
    engine = make_engine(tmp_path)
    result = run_query(Query(), made.query_table, engine)
    (hold,) = made.store.holds.all()
    assert "query t" in hold.owner
    assert hold.version == 2
    for _ in result:
        pass
    assert holds(made) == 0
    with run_query(Query(), made.query_table, engine):
        assert holds(made) == 1
    assert holds(made) == 0


def test_unclosed_result_releases_its_version(made: DataTable, tmp_path: Path):
    made.add_rows([row(n) for n in range(300)])
    result = run_query(Query(), made.query_table, make_engine(tmp_path))
    assert holds(made) == 1
    del result
    gc.collect()
    deadline = time.monotonic() + 60
    while holds(made) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert holds(made) == 0


def test_hold_is_renewed_while_rows_are_read_slowly(made: DataTable, tmp_path: Path):
    made.add_rows([row(n) for n in range(300)])
    others = set(threading.enumerate())

    def expiry_ms() -> int:
        (hold,) = made.store.holds.all()
        return hold.expiry_ms

    with run_query(Query(), made.query_table, make_engine(tmp_path, hold_seconds=3)):
        first = expiry_ms()
        deadline = time.monotonic() + 30
        while expiry_ms() == first and time.monotonic() < deadline:
            time.sleep(0.01)
        assert expiry_ms() > first
    for thread in set(threading.enumerate()) - others:
        if thread.name.startswith("hold of version"):
            thread.join(30)
    assert holds(made) == 0


def test_held_version_is_not_collected(made: DataTable, tmp_path: Path):
    made.add_rows([row(n) for n in range(300)])
    result = run_query(Query(), made.query_table, make_engine(tmp_path))
    for leaf in made.leaves():
        made.compact_partition(leaf)
    with pytest.raises(StateMovedOnError, match="hold"):
        made.remove_unreferenced_files()
    assert sum(batch.num_rows for batch in result) == 300
    assert made.remove_unreferenced_files()


def test_file_deleted_before_the_first_row_restarts_the_query(
    made: DataTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made.add_rows([row(n) for n in range(50)])
    engine = make_engine(tmp_path)
    region = make_range_region(SCHEMA, "k00000", "k00100")
    run_query(Query((region,)), made.query_table, engine).read_all()

    from sleeper.query import run

    original = run.plan_with_filters
    attempts = []

    def compact_after_planning(*arguments):
        plan = original(*arguments)
        attempts.append(plan)
        if len(attempts) == 1:
            made.compact_partition(made.leaves()[0])
            made.remove_unreferenced_files()
        return plan

    monkeypatch.setattr(run, "plan_with_filters", compact_after_planning)
    result = run_query(Query((region,)), made.query_table, engine).read_all()
    assert list_rows(result) == sorted(made.expected_rows)
    assert len(attempts) == 2


def test_lost_file_is_reported_as_damage(made: DataTable, tmp_path: Path):
    file = made.add_rows([row(n) for n in range(50)])
    made.root.delete([file.path])
    with pytest.raises(DataError, match=f"{file.path}.*missing"):
        run_query(Query(), made.query_table, make_engine(tmp_path))


def test_file_deleted_between_batches_is_an_error(made: DataTable, tmp_path: Path):
    made.add_rows([row(n) for n in range(50)])
    last = made.add_rows([row(n) for n in range(200, 250)])
    result = run_query(Query(), made.query_table, make_engine(tmp_path))
    made.root.delete([last.path])
    assert next(result).num_rows == 50
    with pytest.raises(StateMovedOnError):
        next(result)
    assert holds(made) == 0


def test_files_without_the_key_are_not_read(made: DataTable):
    for start in (0, 20, 40):
        made.add_rows([row(n) for n in range(start, start + 10)])
    plan = plan_table_query(Query(make_key_regions(SCHEMA, [("k00025",)])), made.query_table)
    (leaf,) = plan.leaves
    assert [s.file.smallest_key for s in leaf.scans] == [("k00020",)]
    assert not plan_table_query(
        Query(make_key_regions(SCHEMA, [("k00015",)])), made.query_table
    ).leaves


def test_file_within_the_region_is_read_without_a_predicate(made: DataTable):
    made.add_rows([row(n) for n in range(0, 50)])
    made.add_rows([row(n) for n in range(0, 200)])
    plan = plan_table_query(Query((make_range_region(SCHEMA, None, "k00100"),)), made.query_table)
    (leaf,) = plan.leaves
    inside = {s.file.rows: s.regions is None for s in leaf.scans}
    assert inside == {50: True, 200: False}


def test_row_limit_is_enforced(made: DataTable, tmp_path: Path):
    made.add_rows([row(n) for n in range(300)])
    engine = make_engine(tmp_path, rows_max=250)
    with pytest.raises(InvalidRequestError, match="more than 250 rows"):
        run_query(Query(), made.query_table, engine).read_all()
    assert holds(made) == 0


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        (Query(columns=("id", "nope")), "no field 'nope'"),
        (Query(columns=()), "at least one"),
        (Query(columns=("id", "id")), "duplicate"),
        (Query(limit=-1), "limit -1"),
        (Query(version=10**6), "does not exist yet"),
    ],
)
def test_query_that_does_not_fit_the_schema_is_refused(
    made: DataTable, tmp_path: Path, query: Query, complaint: str
):
    with pytest.raises(InvalidRequestError, match=complaint):
        run_query(query, made.query_table, make_engine(tmp_path))


def test_a_read_of_several_batches_of_one_leaf_is_held_from_its_start(
    made: DataTable, tmp_path: Path
):
    made.add_rows([row(n % 50, n) for n in range(30_000)])
    region = make_range_region(SCHEMA, "k00000", "k00100")
    with run_query(Query((region,)), made.query_table, make_engine(tmp_path)) as result:
        assert holds(made) == 1
        begun = next(result).num_rows
        made.compact_partition(made.leaves()[0])
        with pytest.raises(StateMovedOnError, match="hold"):
            made.remove_unreferenced_files()
        assert begun + sum(batch.num_rows for batch in result) == 30_000
    assert holds(made) == 0
    assert made.remove_unreferenced_files()


def test_one_engine_serves_many_threads(made: DataTable, tmp_path: Path):
    for start in range(3):
        made.add_rows([row(n, start) for n in range(start, 300, 3)])
    engine = make_engine(tmp_path)

    def look_up(number: int) -> bool:
        query = Query(make_key_regions(SCHEMA, [(f"k{number:05d}",)]))
        rows = list_rows(run_query(query, made.query_table, engine).read_all())
        return rows == [row(number, number % 3)]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(look_up, range(0, 300, 5)))


def test_engine_releases_the_tables_of_a_query(made: DataTable, tmp_path: Path):
    made.add_rows([row(n) for n in range(300)])
    engine = make_engine(tmp_path)
    run_query(Query(), made.query_table, engine).read_all()
    with run_query(Query(), made.query_table, engine) as stopped_early:
        next(stopped_early)
    assert engine.session.catalog().schema("public").names() == set()


def test_rows_with_equal_keys_have_a_stable_order(tmp_path: Path) -> None:
    """Pages of results are numbered by it, and repeats of a subquery are dropped by number.

    Only under the same properties: other limits of the merge group its inputs otherwise.
    """
    schema = Schema((Field("k", PrimitiveType.LONG),), (), (Field("v", PrimitiveType.LONG),))
    made = DataTable(tmp_path, schema)
    for file in range(7):
        made.add_rows([(i // 400, file * 10_000 + i) for i in range(4_000)])
    orders = []
    for run in range(3):
        folder = tmp_path / f"run-{run}"
        folder.mkdir()
        with run_query(
            Query(None), made.query_table, make_engine(folder, threads=1 + run)
        ) as result:
            orders.append(result.read_all()["v"].to_pylist())
    assert orders[0] == orders[1] == orders[2]
    assert len(orders[0]) == 28_000
