"""The change feed: every ingested row once, in pieces between versions."""

import pickle
import time
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.write.partitioned import FileStrategy
from sleeper.errors import InvalidRequestError
from sleeper.processing.model import Processing
from sleeper.processing.text import parse_aggregations
from sleeper.query.distributed.change_feed import next_version, plan_feed, read_feed_piece
from sleeper.query.distributed.feed_claim import FollowerClaim, HoldClaim
from sleeper.query.engine import QueryEngine, QuerySettings
from sleeper.query.request import Query, region_of_range
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.statestore.transactions.holds import DeleteFollower
from tests.real_table import LONG_SCHEMA, RealTable
from tests.unit.conftest import MakeTable

BY_LEAF = FileStrategy.ONE_FILE_PER_LEAF
EVERYTHING = Query()


def keys_between(
    table: RealTable, start: int, end: int, query: Query = EVERYTHING, piece_bytes: int = 1
) -> list[int]:
    engine = QueryEngine(QuerySettings(table.engine), table.clock)
    schema, pieces = plan_feed(table.store, start, end, query, piece_bytes)
    return [
        row["key"]
        for piece in pickle.loads(pickle.dumps(pieces))
        for batch in read_feed_piece(schema, query, piece, table.root, engine)
        for row in batch.to_pylist()
    ]


def followed(table: RealTable, files_max: int | None = None) -> list[list[int]]:
    """What a reader from the beginning gets, batch by batch."""
    found, start = [], 0
    while (end := next_version(table.store, start, files_max, None)) != start:
        found.append(keys_between(table, start, end))
        start = end
    return found


def test_rows_come_once_and_what_compactions_make_of_them_does_not(make_table: MakeTable) -> None:
    table = make_table(split_points=[50])
    table.ingest(range(0, 100, 2))
    table.ingest(range(1, 100, 2), strategy=BY_LEAF)
    table.compact(full=True)
    table.ingest([200])
    assert [sorted(batch) for batch in followed(table)] == [[*range(100), 200]]
    assert [len(batch) for batch in followed(table, files_max=1)] == [50, 50, 1]


def test_a_transaction_is_never_torn_by_the_number_of_files(make_table: MakeTable) -> None:
    table = make_table(split_points=[10, 20, 30])
    table.ingest(range(40), strategy=BY_LEAF)
    table.ingest(range(40, 50))
    assert [len(batch) for batch in followed(table, files_max=2)] == [40, 10]


def test_nothing_but_new_files_moves_the_feed(table: RealTable) -> None:
    table.ingest(range(10))
    start = table.number()
    table.store.commit_or_raise(AddFiles("no rows", table.clock(), ()))
    table.compact(full=True)
    assert table.number() > start
    assert next_version(table.store, start, 5, None) == start


def test_a_long_quiet_time_moves_it_on(table: RealTable) -> None:
    table.ingest(range(10))
    start = table.number()
    table.store.commit(*(AddFiles(f"job-{n}", table.clock(), ()) for n in range(1000)))
    end = next_version(table.store, start, 5, None)
    assert end == table.number() == start + 1000
    assert keys_between(table, start, end) == []


def test_it_stops_at_the_version_that_is_not_to_be_passed(table: RealTable) -> None:
    table.ingest([1])
    last = table.number()
    table.ingest([2])
    assert next_version(table.store, 0, None, last) == last
    assert next_version(table.store, last, None, last) == last


def test_small_files_go_together(table: RealTable) -> None:
    for key in range(4):
        table.ingest([key])
    _, pieces = plan_feed(table.store, 0, table.number(), Query(), 10**6)
    assert [len(p.scans) for p in pieces] == [4]
    _, pieces = plan_feed(table.store, 0, table.number(), Query(), 1)
    assert [len(p.scans) for p in pieces] == [1, 1, 1, 1]


def test_regions_and_columns_narrow_it(table: RealTable) -> None:
    table.ingest(range(10))
    table.ingest(range(10, 20))
    query = Query((region_of_range(LONG_SCHEMA, 8, 10),), ("key",))
    assert keys_between(table, 0, table.number(), query) == [8, 9]
    _, pieces = plan_feed(table.store, 0, table.number(), query, 1)
    assert len(pieces) == 1


def test_rows_come_as_they_were_ingested_not_as_they_add_up(make_table: MakeTable) -> None:
    schema = Schema((Field("key", PrimitiveType.LONG),), (), (Field("n", PrimitiveType.LONG),))
    adding = Processing(aggregations=parse_aggregations("sum(n)"))
    table = make_table(schema=schema, processing=adding)
    for _ in range(2):
        table.ingest_sorted(pa.table({"key": [1], "n": [5]}, schema=arrow_schema(schema)))
    table.compact(full=True)
    assert len(table.rows()) == 1
    assert keys_between(table, 0, table.number()) == [1, 1]


def test_a_start_whose_files_were_collected_is_refused_by_the_oldest(table: RealTable) -> None:
    _compacted_and_collected(table)
    with pytest.raises(InvalidRequestError, match=r"from version \d+ on"):
        next_version(table.store, 0, 5, None)
    with pytest.raises(InvalidRequestError, match=r"from version \d+ on"):
        plan_feed(table.store, 0, table.number(), Query(), 1)


def test_a_start_that_is_not_reached_is_refused(table: RealTable) -> None:
    with pytest.raises(InvalidRequestError, match="not reached"):
        next_version(table.store, 1000, 5, None)


def test_a_follower_keeps_the_files_however_long_it_takes(table: RealTable) -> None:
    claim = FollowerClaim(table.store, "f")
    claim.keep(claim.begin(1))
    _compacted_and_collected(table, files=0)
    assert len(keys_between(table, 1, table.number())) == 20
    claim.has_read(table.number())
    assert table.collect().files > 0


def test_a_new_reader_goes_on_where_its_follower_is(table: RealTable) -> None:
    claim = FollowerClaim(table.store, "f")
    claim.keep(claim.begin(1))
    table.ingest([1])
    claim.has_read(table.number())
    assert FollowerClaim(table.store, "f").begin(1) == table.number()


def test_a_follower_that_was_deleted_is_made_anew(table: RealTable) -> None:
    claim = FollowerClaim(table.store, "f")
    claim.keep(1)
    table.store.commit_or_raise(DeleteFollower("f"))
    table.ingest([1])
    claim.has_read(table.number())
    claim.keep(table.number())
    assert [f.position for f in table.store.followers()] == [table.number() - 1]


def test_a_hold_moves_with_its_reader_and_expires_after_it_stops(table: RealTable) -> None:
    claim = HoldClaim(table.store, 3600, table.clock, "tests")
    claim.keep(1)
    number = table.number()
    table.ingest([1])
    claim.keep(number + 1)
    assert table.number() == number + 1
    table.clock.pass_minutes(21)
    claim.keep(number + 1)
    with table.store.reading() as state:
        assert [h.version for h in state.collection.holds()] == [number + 1]
    table.clock.pass_minutes(10)
    claim.release()
    claim.release()
    assert _hold_expires_after(table, table.clock() + 3599 * 1000)
    assert not _hold_expires_after(table, table.clock() + 3600 * 1000)


def test_a_hold_is_renewed_while_its_reader_is_busy_with_a_long_batch(table: RealTable) -> None:
    """Spark asks for no offset during a micro-batch, so only a timer can renew the hold."""
    start = table.number()
    table.ingest(range(10))
    claim = HoldClaim(table.store, 1, table.clock, "tests")
    claim.keep(start)
    table.ingest(range(10, 20))
    table.compact(full=True)
    table.clock.pass_minutes(60)
    wait_for(lambda: _hold_expires_after(table, table.clock()))
    assert table.collect().files == 0
    assert sorted(keys_between(table, start, table.number())) == [*range(20)]
    claim.release()
    table.clock.pass_minutes(1)
    assert table.collect().files > 0


def _hold_expires_after(table: RealTable, moment_ms: int) -> bool:
    with table.store.reading() as state:
        return any(hold.expiry_ms > moment_ms for hold in state.collection.holds())


def test_a_hold_comes_too_late_for_what_is_collected(table: RealTable) -> None:
    _compacted_and_collected(table)
    with pytest.raises(InvalidRequestError, match=r"from version \d+ on"):
        HoldClaim(table.store, 3600, table.clock, "tests").keep(1)


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(st.sampled_from(["ingest", "leaves", "compact", "split"]), max_size=7),
    files_max=st.sampled_from([1, 2, 100]),
)
def test_whatever_happens_a_follower_gets_every_row_once(
    steps: list[str], files_max: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = RealTable(tmp_path_factory.mktemp("feed"), split_points=[50])
    claim = FollowerClaim(table.store, "f")
    claim.keep(1)
    start, ingested, found = 1, 0, []
    for step in steps:
        match step:
            case "ingest" | "leaves":
                how = BY_LEAF if step == "leaves" else FileStrategy.ONE_REFERENCE_PER_LEAF
                table.ingest(range(ingested, ingested + 20), strategy=how)
                ingested += 20
            case "compact":
                table.compact(full=True)
                table.clock.pass_minutes(60)
                table.collect()
            case "split":
                table.split_all(threshold=30)
        end = next_version(table.store, start, files_max, None)
        found += keys_between(table, start, end)
        claim.has_read(start)  # Spark tells of an offset one batch later
        start = end
    while (end := next_version(table.store, start, files_max, None)) != start:
        found += keys_between(table, start, end)
        start = end
    table.close()
    assert sorted(found) == [*range(ingested)]


def _compacted_and_collected(table: RealTable, files: int | None = None) -> None:
    table.ingest(range(10))
    table.ingest(range(10, 20))
    table.compact(full=True)
    table.clock.pass_minutes(60)
    collected = table.collect().files
    assert collected == files if files is not None else collected > 0


def wait_for(condition: Callable[[], object]) -> None:
    """Waits until the condition holds, for ten seconds at most."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "the condition did not come true within 10 s"
        time.sleep(0.02)
