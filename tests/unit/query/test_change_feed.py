"""The change feed: every ingested row once, in parts between versions."""

import pickle
import time
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.merge.steps import TableIterators
from sleeper.datafiles.write.partitioned import FileStrategy
from sleeper.errors import InvalidRequestError
from sleeper.processing.model import Processing
from sleeper.processing.text import parse_aggregations
from sleeper.query.distributed.follow import FollowerClaim, HoldClaim, next_version, plan_feed
from sleeper.query.distributed.read import read_part
from sleeper.query.engine import QueryEngine, QuerySettings
from sleeper.query.request import Query, make_range_region
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.statestore.transactions.holds import DeleteFollower
from tests.tables.data_table import LONG_SCHEMA, DataTable
from tests.unit.conftest import MakeTable

pytestmark = pytest.mark.usefixtures("holds_of_reads")

BY_LEAF = FileStrategy.ONE_FILE_PER_LEAF
ALL_ROWS = Query()


def keys_between(
    table: DataTable, start: int, end: int, query: Query = ALL_ROWS, part_bytes: int = 1
) -> list[int]:
    engine = QueryEngine(QuerySettings(table.engine), table.clock)
    read, parts = plan_feed(table.store, start, end, query, part_bytes)
    return [
        row["key"]
        for part in pickle.loads(pickle.dumps(parts))
        for batch in read_part(read, part, table.root, TableIterators(), engine)
        for row in batch.to_pylist()
    ]


def follow(table: DataTable, files_max: int | None = None) -> list[list[int]]:
    """Returns the batches of a reader that starts at the beginning."""
    count, start = [], 0
    while (end := next_version(table.store, start, files_max, None)) != start:
        count.append(keys_between(table, start, end))
        start = end
    return count


def test_the_feed_has_each_ingested_row_once_and_no_compacted_files(make_table: MakeTable) -> None:
    table = make_table(split_points=[50])
    table.ingest(range(0, 100, 2))
    table.ingest(range(1, 100, 2), strategy=BY_LEAF)
    table.compact(full=True)
    table.ingest([200])
    assert [sorted(batch) for batch in follow(table)] == [[*range(100), 200]]
    assert [len(batch) for batch in follow(table, files_max=1)] == [50, 50, 1]


def test_the_file_limit_never_splits_a_transaction(make_table: MakeTable) -> None:
    table = make_table(split_points=[10, 20, 30])
    table.ingest(range(40), strategy=BY_LEAF)
    table.ingest(range(40, 50))
    assert [len(batch) for batch in follow(table, files_max=2)] == [40, 10]


def test_only_new_files_advance_the_feed(table: DataTable) -> None:
    table.ingest(range(10))
    start = table.number()
    table.store.commit_or_raise(AddFiles("no rows", table.clock(), ()))
    table.compact(full=True)
    assert table.number() > start
    assert next_version(table.store, start, 5, None) == start


def test_many_transactions_without_files_advance_the_feed(table: DataTable) -> None:
    table.ingest(range(10))
    start = table.number()
    table.store.commit(*(AddFiles(f"job-{n}", table.clock(), ()) for n in range(1000)))
    end = next_version(table.store, start, 5, None)
    assert end == table.number() == start + 1000
    assert keys_between(table, start, end) == []


def test_the_feed_stops_at_the_last_version(table: DataTable) -> None:
    table.ingest([1])
    last = table.number()
    table.ingest([2])
    assert next_version(table.store, 0, None, last) == last
    assert next_version(table.store, last, None, last) == last


def test_small_files_are_grouped(table: DataTable) -> None:
    for key in range(4):
        table.ingest([key])
    _, parts = plan_feed(table.store, 0, table.number(), Query(), 10**6)
    assert [len(p.leaves) for p in parts] == [4]
    _, parts = plan_feed(table.store, 0, table.number(), Query(), 1)
    assert [len(p.leaves) for p in parts] == [1, 1, 1, 1]


def test_regions_and_columns_restrict_the_feed(table: DataTable) -> None:
    table.ingest(range(10))
    table.ingest(range(10, 20))
    query = Query((make_range_region(LONG_SCHEMA, 8, 10),), ("key",))
    assert keys_between(table, 0, table.number(), query) == [8, 9]
    _, parts = plan_feed(table.store, 0, table.number(), query, 1)
    assert len(parts) == 1


def test_the_feed_skips_aggregations(make_table: MakeTable) -> None:
    schema = Schema((Field("key", PrimitiveType.LONG),), (), (Field("n", PrimitiveType.LONG),))
    summing = Processing(aggregations=parse_aggregations("sum(n)"))
    table = make_table(schema=schema, processing=summing)
    for _ in range(2):
        table.ingest_sorted(pa.table({"key": [1], "n": [5]}, schema=arrow_schema(schema)))
    table.compact(full=True)
    assert len(table.rows()) == 1
    assert keys_between(table, 0, table.number()) == [1, 1]


def test_a_collected_start_is_refused_with_the_oldest_version(table: DataTable) -> None:
    _compacted_and_collected(table)
    with pytest.raises(InvalidRequestError, match=r"from version \d+ on"):
        next_version(table.store, 0, 5, None)
    with pytest.raises(InvalidRequestError, match=r"from version \d+ on"):
        plan_feed(table.store, 0, table.number(), Query(), 1)


def test_a_future_start_is_refused(table: DataTable) -> None:
    with pytest.raises(InvalidRequestError, match="does not exist yet"):
        next_version(table.store, 1000, 5, None)


def test_a_follower_keeps_the_files_without_a_time_limit(table: DataTable) -> None:
    claim = FollowerClaim(table.store, "f")
    claim.keep(claim.begin(1))
    _compacted_and_collected(table, files=0)
    assert len(keys_between(table, 1, table.number())) == 20
    claim.advance(table.number())
    assert table.collect().files > 0


def test_a_new_reader_continues_at_its_follower_s_position(table: DataTable) -> None:
    claim = FollowerClaim(table.store, "f")
    claim.keep(claim.begin(1))
    table.ingest([1])
    claim.advance(table.number())
    assert FollowerClaim(table.store, "f").begin(1) == table.number()


def test_a_deleted_follower_is_created_again(table: DataTable) -> None:
    claim = FollowerClaim(table.store, "f")
    claim.keep(1)
    table.store.commit_or_raise(DeleteFollower("f"))
    table.ingest([1])
    claim.advance(table.number())
    claim.keep(table.number())
    assert [f.position for f in table.store.followers()] == [table.number() - 1]


def test_a_hold_moves_with_its_reader_and_expires_after_it_stops(table: DataTable) -> None:
    claim = HoldClaim(table.store, 3600, table.clock, "tests")
    claim.keep(1)
    number = table.number()
    table.ingest([1])
    claim.keep(number + 1)
    assert table.number() == number + 1
    table.clock.pass_minutes(21)
    claim.keep(number + 1)
    assert [h.version for h in table.holds()] == [number + 1]
    table.clock.pass_minutes(10)
    claim.release()
    claim.release()
    assert _hold_expires_after(table, table.clock() + 3599 * 1000)
    assert not _hold_expires_after(table, table.clock() + 3600 * 1000)


def test_a_hold_is_renewed_during_a_long_batch(table: DataTable) -> None:
    """Spark requests no offset during a micro-batch, so only a timer can renew the hold."""
    start = table.number()
    table.ingest(range(10))
    claim = HoldClaim(table.store, 1, table.clock, "tests")
    claim.keep(start)
    table.ingest(range(10, 20))
    table.compact(full=True)
    table.clock.pass_minutes(60)
    wait_until(lambda: _hold_expires_after(table, table.clock()))
    assert table.collect().files == 0
    assert sorted(keys_between(table, start, table.number())) == [*range(20)]
    claim.release()
    table.clock.pass_minutes(2)  # the margin is one of them
    assert table.collect().files > 0


def _hold_expires_after(table: DataTable, moment_ms: int) -> bool:
    return any(hold.expiry_ms > moment_ms for hold in table.holds())


def test_a_hold_on_a_collected_version_is_refused(table: DataTable) -> None:
    _compacted_and_collected(table)
    with pytest.raises(InvalidRequestError, match=r"from version \d+ on"):
        HoldClaim(table.store, 3600, table.clock, "tests").keep(1)


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(st.sampled_from(["ingest", "leaves", "compact", "split"]), max_size=7),
    files_max=st.sampled_from([1, 2, 100]),
)
def test_a_follower_reads_every_row_once_despite_other_writers(
    steps: list[str], files_max: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = DataTable(tmp_path_factory.mktemp("feed"), split_points=[50])
    claim = FollowerClaim(table.store, "f")
    claim.keep(1)
    start, ingested, results = 1, 0, []
    for step in steps:
        match step:
            case "ingest" | "leaves":
                strategy = BY_LEAF if step == "leaves" else FileStrategy.ONE_REFERENCE_PER_LEAF
                table.ingest(range(ingested, ingested + 20), strategy=strategy)
                ingested += 20
            case "compact":
                table.compact(full=True)
                table.clock.pass_minutes(60)
                table.collect()
            case "split":
                table.split_all(threshold=30)
        end = next_version(table.store, start, files_max, None)
        results += keys_between(table, start, end)
        claim.advance(start)  # Spark commits an offset one batch later
        start = end
    while (end := next_version(table.store, start, files_max, None)) != start:
        results += keys_between(table, start, end)
        start = end
    table.close()
    assert sorted(results) == [*range(ingested)]


def _compacted_and_collected(table: DataTable, files: int | None = None) -> None:
    table.ingest(range(10))
    table.ingest(range(10, 20))
    table.compact(full=True)
    table.clock.pass_minutes(60)
    collection = table.collect().files
    assert collection == files if files is not None else collection > 0


def wait_until(condition: Callable[[], object]) -> None:
    """Waits until the condition holds, for a minute at most."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "the condition did not come true within 60 s"
        time.sleep(0.02)
