"""The floor of a process: short reads write nothing, and are kept as a hold keeps them."""

from pathlib import Path

import pytest

from sleeper.errors import InvalidRequestError, StateMovedOnError, UnavailableError
from sleeper.garbage_collection.collection import CollectionReport, collect_garbage
from sleeper.properties.values import InstanceProperties, TableProperties
from sleeper.renewal import Renewal
from sleeper.statestore import floor
from sleeper.statestore.floor import FLOOR_SECONDS, Floor
from sleeper.statestore.holds import MARGIN_MS, Hold
from sleeper.statestore.transactions.compaction_jobs import CommitCompaction
from sleeper.statestore.transactions.table_definition import AcceptTime
from sleeper.tables import TableId
from tests.tables.memory_holds import MemoryHolds
from tests.tables.state_table import ROOT, StateTable, data_file

WITHOUT_DELAY = TableProperties({"sleeper.table.gc.delay.minutes": "0"}, InstanceProperties({}))


class CountedHolds(MemoryHolds):
    """Holds that count their writes, and may be unavailable."""

    writes = 0
    is_full = False
    refused = 0

    def put(self, hold: Hold) -> None:
        if self.is_full:
            self.refused += 1
            raise UnavailableError("the disk is full")
        self.writes += 1
        super().put(hold)


class Table(StateTable):
    """A table with a compaction in its log, and a floor of another process than the collector's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.port = CountedHolds()
        self.store._holds = self.port
        self.floor = Floor(self.clock)
        self.initialise()
        self.ingest("a")
        self.old = self.number()
        self.compact("a", "b")

    def compact(self, path: str, output: str) -> None:
        self.assign(output, path)
        self.commit(CommitCompaction(output, ROOT, (path,), data_file(output), self.clock.now_ms))

    def enter(self, version: int | None = None) -> int:
        entered = self.number() if version is None else version
        self.floor.enter(self.store.holds, entered)
        return entered

    def renew(self) -> None:
        self.floor._renew(self.store.holds)

    def collect(self) -> CollectionReport:
        return collect_garbage(
            TableId("table"), self.store, WITHOUT_DELAY, lambda _: None, self.clock
        )

    def pass_seconds(self, seconds: float) -> None:
        self.clock.now_ms += int(seconds * 1000)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path, "embedded")


def test_reads_of_a_warm_process_write_nothing(table: Table) -> None:
    for _ in range(1_000):
        table.floor.leave(table.enter())
    assert table.port.writes == 1
    table.ingest("c")
    table.floor.leave(table.enter())
    assert table.port.writes == 1


def test_a_floor_keeps_all_versions_from_its_own_on(table: Table) -> None:
    table.enter(table.old)
    table.compact("b", "c")
    assert table.collect().files == 0
    table.floor.leave(table.old)
    table.renew()
    assert table.collect().files == 2


def test_a_renewal_moves_the_floor_to_the_oldest_version_that_is_read(table: Table) -> None:
    table.enter(table.old)
    later = table.enter()
    table.floor.leave(table.old)
    table.renew()
    [written] = table.port.all()
    assert written.version == later
    assert table.collect().files == 1
    with pytest.raises(InvalidRequestError, match="no longer readable"):
        table.leaf_paths("root", table.old)


def test_a_read_of_an_older_version_lowers_the_floor(table: Table) -> None:
    newest = table.enter()
    table.enter(table.old)
    assert table.port.writes == 2
    [written] = table.port.all()
    assert written.version == table.old < newest
    assert table.collect().files == 0


def test_a_read_of_a_collected_version_is_refused_and_leaves_no_trace(table: Table) -> None:
    newest = table.number()
    table.collect()
    with pytest.raises(StateMovedOnError, match="no longer readable"):
        table.enter(table.old)
    table.enter(newest)
    table.renew()
    [written] = table.port.all()
    assert written.version == newest


def test_a_floor_that_lapsed_is_written_and_checked_again(table: Table) -> None:
    table.enter(table.old)
    table.pass_seconds(FLOOR_SECONDS + MARGIN_MS / 1000)
    assert table.collect().files == 1
    with pytest.raises(StateMovedOnError, match="no longer readable"):
        table.renew()
    table.enter()
    assert table.port.writes == 3


@pytest.mark.parametrize(("passed", "writes"), [(FLOOR_SECONDS - 61, 1), (FLOOR_SECONDS - 60, 2)])
def test_a_read_begins_under_a_floor_only_if_that_lasts(
    table: Table, passed: int, writes: int
) -> None:
    table.enter()
    table.pass_seconds(passed)
    table.enter()
    assert table.port.writes == writes


def test_a_clock_that_is_set_back_prolongs_no_floor(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.enter()
    start = floor.time.monotonic()
    monkeypatch.setattr(floor.time, "monotonic", lambda: start + FLOOR_SECONDS)
    table.pass_seconds(-FLOOR_SECONDS)
    table.enter()
    assert table.port.writes == 2


def test_a_floor_without_readers_ends_with_its_process_or_store(table: Table) -> None:
    version = table.enter()
    table.floor.end(table.store.holds)
    assert len(table.port.all()) == 1
    table.floor.leave(version)
    table.floor.end(table.store.holds)
    assert table.port.all() == []
    table.enter()
    assert len(table.port.all()) == 1


def test_an_idle_floor_is_no_longer_renewed(table: Table) -> None:
    table.floor.leave(table.enter())
    table.pass_seconds(59)
    table.renew()
    table.pass_seconds(1)
    table.renew()
    assert table.port.writes == 2
    assert table.floor._renewal is None


def test_a_floor_that_cannot_be_written_keeps_nothing_and_is_tried_again_after_a_while(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.port.is_full = True
    for _ in range(3):
        with pytest.raises(UnavailableError, match="the disk is full"):
            table.enter()
    assert table.port.refused == 1
    table.port.is_full = False
    start = floor.time.monotonic()
    monkeypatch.setattr(floor.time, "monotonic", lambda: start + 5)
    table.enter()
    assert table.port.writes == 1


def test_a_floor_that_ended_has_another_id(table: Table) -> None:
    """A write that has no answer may be done after later ones."""
    table.floor.leave(table.enter())
    [before] = table.port.all()
    table.floor.end(table.store.holds)
    table.enter()
    table.port.delete([before.id])
    assert len(table.port.all()) == 1


def test_a_floor_whose_write_has_no_answer_ends(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = CountedHolds.put

    def put_without_answer(holds: CountedHolds, hold: Hold) -> None:
        put(holds, hold)
        raise UnavailableError("the answer is lost")

    monkeypatch.setattr(CountedHolds, "put", put_without_answer)
    with pytest.raises(UnavailableError):
        table.enter()
    assert len(table.port.all()) == 1
    table.floor.end(table.store.holds)
    assert table.port.all() == []


def test_a_renewal_that_waited_for_the_end_writes_nothing(table: Table) -> None:
    table.floor.leave(table.enter())
    table.floor.end(table.store.holds)
    table.renew()
    assert table.port.all() == []


def test_a_thread_that_died_is_replaced(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.enter()
    first = table.floor._renewal
    monkeypatch.setattr(Renewal, "is_running", False)
    table.pass_seconds(FLOOR_SECONDS)
    table.enter()
    assert table.floor._renewal not in (None, first)


def test_a_renewal_reads_the_time_of_the_log(tmp_path: Path) -> None:
    """The clock of a writer is ahead, and collectors count a floor by the time of its entry."""
    table = Table(tmp_path, "remote")
    table.enter(table.old)
    table.pass_seconds(3600)
    table.another_store().commit(AcceptTime(table.clock.now_ms))
    table.pass_seconds(-3600)
    table.renew()
    assert table.collect().files == 0
