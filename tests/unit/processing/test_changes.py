"""A table's processing is state: changed by a transaction, read as of a version."""

from pathlib import Path

import pytest

from sleeper.compaction.run import CompactionResult
from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.processing.model import NO_PROCESSING, Processing
from sleeper.processing.text import parse_aggregations, parse_filters
from sleeper.query.engine import QueryEngine, QuerySettings, QueryTable
from sleeper.query.request import Query
from sleeper.query.run import run_query
from sleeper.query.sql.statement import run_sql
from sleeper.query.sql.tables import AsOf
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.statestore.transactions.table_definition import ChangeProcessing, InitialiseTable
from sleeper.statestore.transactions.transaction import Status
from tests.clock import START_MS
from tests.tables.data_table import DataTable
from tests.tables.state_table import StateTable
from tests.unit.processing.test_any_history import arrow_table, list_rows

P = PrimitiveType
SCHEMA = Schema((Field("key", P.INT),), (Field("time", P.LONG),), (Field("count", P.LONG),))
SUM_PROCESSING = Processing((), parse_aggregations("sum(count)"))
ROWS = [(1, START_MS, 1), (1, START_MS, 2), (2, START_MS + 50, 3)]


@pytest.fixture
def table(tmp_path: Path):
    data_table = DataTable(tmp_path, SCHEMA, processing=SUM_PROCESSING)
    yield data_table
    data_table.close()


def ingest(table: DataTable, rows: list = ROWS) -> int:
    table.ingest_sorted(arrow_table(SCHEMA, rows))
    return table.number()


def change(table: DataTable, **texts: str):
    (outcome,) = table.store.commit(ChangeProcessing(**texts))
    return outcome


def read(table: DataTable, version: int | None = None, **more) -> list:
    engine = QueryEngine(QuerySettings(table.engine), table.clock)
    query_table = QueryTable("t", table.store, table.root)
    return list_rows(run_query(Query(version=version, **more), query_table, engine).read_all())


def test_one_part_is_changed_and_the_other_stays(table: DataTable):
    assert change(table, filters="ageOff(time,5)").status is Status.APPLIED
    with table.store.reading() as state:
        assert state.processing == Processing(
            parse_filters("ageOff(time,5)"), SUM_PROCESSING.aggregations
        )
    assert change(table, aggregations="").status is Status.APPLIED
    assert change(table, filters="").status is Status.APPLIED
    assert change(table, filters="").status is Status.ALREADY_DONE
    with table.store.reading() as state:
        assert state.processing == NO_PROCESSING


def test_a_change_that_does_not_fit_the_schema_is_refused(table: DataTable):
    assert "no field 'x'" in change(table, filters="ageOff(x,5)").reason
    assert "unknown aggregation" in change(table, aggregations="avg(count)").reason
    assert "is aggregated" in change(table, filters="ageOff(count,5)").reason
    bad = InitialiseTable('{"rowKeyFields":[{"name":"k","type":"IntType"}]}', (), '{"x":1}')
    (outcome,) = table.store.commit(bad)
    assert outcome.refused


def test_an_old_version_is_read_as_it_was_processed(table: DataTable):
    sums = ingest(table)
    change(table, aggregations="")
    assert read(table) == ROWS
    assert read(table, sums) == [(1, START_MS, 3), (2, START_MS + 50, 3)]


def test_an_old_version_has_its_own_time(table: DataTable):
    change(table, filters="ageOff(time,1000)")
    early = ingest(table)
    table.clock.now_ms += 1000
    late = ingest(table, [(9, table.clock.now_ms, 0)])
    table.clock.now_ms += 49
    assert read(table, early) == [(1, START_MS, 3), (2, START_MS + 50, 3)]
    remaining = [(2, START_MS + 50, 3), (9, START_MS + 1000, 0)]
    assert read(table, late) == remaining
    assert read(table) == remaining
    table.clock.now_ms += 1
    assert read(table) == remaining[1:]
    assert read(table, late) == remaining


def test_sql_reads_an_old_version_as_a_query_does(table: DataTable):
    change(table, filters="ageOff(time,1000)")
    early = ingest(table)
    change(table, aggregations="")
    table.clock.now_ms += 5000
    engine = QueryEngine(QuerySettings(table.engine), table.clock)
    openers = {"t": lambda: QueryTable("t", table.store, table.root)}
    for version in (early, table.number()):
        result = run_sql("SELECT * FROM t", openers, engine, as_of=AsOf(version))
        assert sorted(list_rows(result.read_all())) == sorted(read(table, version))
    assert run_sql("SELECT * FROM t", openers, engine).read_all().num_rows == 0


def test_a_clock_set_back_restores_no_rows(table: DataTable):
    change(table, filters="ageOff(time,1000)")
    table.clock.now_ms += 1000
    ingest(table)
    assert len(read(table)) == 1
    table.clock.now_ms -= 500
    assert len(read(table)) == 1


def test_a_compaction_ages_off_by_the_time_that_its_job_was_created(table: DataTable):
    change(table, filters="ageOff(time,1000)")
    previous = ingest(table)
    ingest(table)
    table.create_jobs(full=True)
    table.clock.now_ms += 5000
    (result,) = table.run_all()
    assert isinstance(result, CompactionResult)
    assert (result.rows_read, result.rows_written) == (6, 2)
    assert read(table) == []
    assert read(table, previous + 1) == [(1, START_MS, 6), (2, START_MS + 50, 6)]


def test_a_compaction_that_leaves_no_row_leaves_no_file(table: DataTable):
    change(table, filters="ageOff(time,10)")
    ingest(table)
    ingest(table)
    table.clock.now_ms += 5000
    (result,) = table.compact(full=True)
    assert isinstance(result, CompactionResult)
    assert result.output is None
    with table.store.reading() as state:
        assert state.files.totals().references == 0
    assert read(table) == []


def test_a_job_from_before_a_change_is_abandoned(table: DataTable):
    """It might have aged off rows that a version after the change still shows."""
    change(table, filters="ageOff(time,10)")
    ingest(table)
    ingest(table)
    table.clock.now_ms += 5000
    table.create_jobs(full=True)
    change(table, filters="")
    assert table.assigned() == []
    assert isinstance(table.run_all()[0], StateMovedOnError)
    assert len(read(table)) == 2
    (again,) = table.compact(full=True)
    assert isinstance(again, CompactionResult)
    assert again.rows_written == 2


def test_a_query_has_its_own_filters_and_aggregations_after_the_tables(table: DataTable):
    ingest(table)
    own = Processing(parse_filters("ageOff(time,50)"), parse_aggregations("max(count)"))
    table.clock.now_ms += 60
    assert read(table, processing=own) == [(2, START_MS + 50, 3)]
    change(table, aggregations="")
    assert read(table, processing=SUM_PROCESSING) == [(1, START_MS, 3), (2, START_MS + 50, 3)]
    with pytest.raises(InvalidRequestError, match="no field 'x'"):
        read(table, processing=Processing(parse_filters("ageOff(x,50)")))


def test_sql_groups_what_is_aggregated_already(table: DataTable):
    ingest(table)
    engine = QueryEngine(QuerySettings(table.engine), table.clock)
    openers = {"t": lambda: QueryTable("t", table.store, table.root)}
    statement = "SELECT key, max(count) AS count FROM t GROUP BY key, time ORDER BY key"
    with run_sql(statement, openers, engine) as result:
        assert list_rows(result.read_all()) == [(1, 3), (2, 3)]


def test_sql_moves_predicates_on_keys_below_an_aggregation_and_no_others(table: DataTable):
    ingest(table)

    def explain(condition: str) -> str:
        engine = QueryEngine(QuerySettings(table.engine), table.clock)
        openers = {"t": lambda: QueryTable("t", table.store, table.root)}
        with run_sql(f"EXPLAIN SELECT * FROM t WHERE {condition}", openers, engine) as result:
            return str(result.read_all()["plan"].to_pylist()[1])

    of_key = explain("key = 2 AND time > 5")
    assert "predicate=key@0 = 2 AND time@1 > 5" in of_key
    of_value = explain("count > 2")
    assert "predicate=" not in of_value
    assert of_value.index("FilterExec") < of_value.index("AggregateExec")


def test_times_of_versions_below_the_horizon_are_deleted(table: DataTable):
    for _ in range(4):
        table.clock.now_ms += 1000
        ingest(table)
    table.compact(full=True)
    table.clock.pass_minutes(60)
    assert table.collect().files == 4
    with table.store.reading() as state:
        horizon = state.horizon
        remaining = [row[0] for row in state._reader.rows("SELECT last FROM entry_times")]
    assert horizon > 4
    assert min(remaining) == horizon
    assert remaining[-1] == table.number()


def test_a_state_of_the_previous_format_is_upgraded(tmp_path: Path):
    data_table = StateTable(tmp_path, "embedded").initialise()
    with data_table.store._database.writing() as connection:
        connection.execute("DROP TABLE entry_times")
        connection.execute("PRAGMA user_version = 1")
    store = data_table.another_store()
    with store.reading() as state:
        assert state.version_time_ms == state.time_ms
    data_table.store = store
    data_table.clock.now_ms += 1000
    data_table.ingest("a")
    with store.reading(1) as state:
        assert state.version_time_ms == data_table.clock.now_ms
