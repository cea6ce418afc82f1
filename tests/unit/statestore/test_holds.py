"""Interleavings of a reader that takes a hold with a collector that raises the horizon."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.garbage_collection import collection
from sleeper.garbage_collection.collection import (
    Claims,
    CollectionReport,
    collect_garbage,
    find_claims,
    raise_horizon,
)
from sleeper.local.holds import LocalHolds
from sleeper.properties.values import InstanceProperties, TableProperties
from sleeper.statestore.holds import MARGIN_MS, Hold
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.compaction_jobs import CommitCompaction
from sleeper.tables import TableId
from tests.tables.state_table import ROOT, StateTable, data_file

WITHOUT_DELAY = TableProperties({"sleeper.table.gc.delay.minutes": "0"}, InstanceProperties({}))
OLD = 3


class Table(StateTable):
    """A table whose files a and b, of version `OLD`, were compacted to `out`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.deleted: list[str] = []
        self.initialise()
        self.ingest("a")
        self.ingest("b")
        self.assign("c", "a", "b")
        out = data_file("out")
        self.commit(CommitCompaction("c", ROOT, ("a", "b"), out, self.clock.now_ms))

    def hold(
        self, hold_id: str = "h", version: int = OLD, seconds: int = 100, is_new: bool = False
    ) -> None:
        expiry_ms = self.clock.now_ms + 1000 * seconds
        self.another_store().holds.take(Hold(hold_id, "a reader", version, expiry_ms), is_new)

    def collect(self) -> CollectionReport:
        return collect_garbage(
            TableId("table"), self.store, WITHOUT_DELAY, self.deleted.extend, self.clock
        )


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path, "embedded")


def test_a_hold_writes_nothing_to_the_log(table: Table) -> None:
    number = table.number()
    table.hold()
    table.store.holds.extend("h", table.clock.now_ms + 1_000_000)
    table.store.holds.release(["h"])
    assert table.number() == number


def test_a_hold_before_the_first_reading_keeps_its_version(table: Table) -> None:
    table.hold()
    report = table.collect()
    assert (report.files, report.horizon_after) == (0, 0)
    assert report.blocker == f"hold h of a reader at version {OLD}"


def test_a_hold_between_the_first_reading_and_the_horizon_keeps_its_files(table: Table) -> None:
    table.log.before_next_append = table.hold
    report = table.collect()
    assert (report.files, table.deleted) == (0, [])
    assert report.horizon_after > OLD
    assert table.leaf_paths("root", OLD) == ["a", "b"]
    table.store.holds.release(["h"])
    with pytest.raises(InvalidRequestError, match="no longer readable"):
        table.leaf_paths("root", OLD)
    assert table.collect().files == 2


def test_changes_after_a_version_that_is_held_below_the_horizon_are_complete(table: Table) -> None:
    start = OLD - 1
    table.log.before_next_append = lambda: table.hold(version=start)
    assert table.collect().horizon_after > start
    with table.store.reading() as state:
        state.check_changes_after(start)
    table.store.holds.release(["h"])
    with table.store.reading() as state, pytest.raises(InvalidRequestError, match="complete"):
        state.check_changes_after(start)


def test_a_hold_after_the_horizon_is_given_up(table: Table) -> None:
    claims = find_claims(table.store, table.clock.now_ms)
    assert raise_horizon(table.store, OLD + 1, claims) is None
    with pytest.raises(StateMovedOnError, match=f"the oldest readable version is {OLD + 1}"):
        table.hold(is_new=True)
    assert table.store.holds.all() == []
    assert table.collect().files == 2


def test_a_hold_that_another_process_is_about_to_give_up_is_not_shared(table: Table) -> None:
    claims = find_claims(table.store, table.clock.now_ms)
    raise_horizon(table.store, OLD + 1, claims)
    table.store._holds.put(Hold("h", "a reader", OLD, table.clock.now_ms + 100_000))
    with pytest.raises(StateMovedOnError, match="no longer readable"):
        table.hold()


def test_a_hold_that_two_processes_write_stays_if_one_of_them_gives_it_up(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = find_claims(table.store, table.clock.now_ms)
    put = LocalHolds.put

    def put_late(holds: LocalHolds, hold: Hold) -> None:
        monkeypatch.undo()
        table.hold()
        assert raise_horizon(table.store, OLD + 1, claims) is None
        put(holds, hold)

    monkeypatch.setattr(LocalHolds, "put", put_late)
    with pytest.raises(StateMovedOnError, match="no longer readable"):
        table.hold()
    assert table.collect().files == 0


def test_an_expired_hold_that_is_extended_while_a_collector_forgets_it_stays(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.hold(seconds=10)
    table.clock.now_ms += 10_000 + MARGIN_MS
    forget = LocalHolds.forget

    def forget_late(holds: LocalHolds, expiry_max_ms: int) -> None:
        table.another_store().holds.extend("h", table.clock.now_ms + 10_000)
        forget(holds, expiry_max_ms)

    monkeypatch.setattr(LocalHolds, "forget", forget_late)
    assert table.collect().files == 0
    assert [hold.id for hold in table.store.holds.unexpired()] == ["h"]


def test_two_collectors_delete_no_held_file(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have read the holds for the first time when the hold is written."""
    other = table.another_store()

    def hold_and_raise(store: StateStore, horizon: int, claims: Claims) -> str | None:
        table.hold()
        return raise_horizon(store, horizon, claims)

    def collect_and_raise(store: StateStore, horizon: int, claims: Claims) -> str | None:
        monkeypatch.setattr(collection, "raise_horizon", hold_and_raise)
        collect_garbage(TableId("table"), other, WITHOUT_DELAY, table.deleted.extend, table.clock)
        monkeypatch.undo()
        assert raise_horizon(store, horizon, claims) is None
        return None

    monkeypatch.setattr(collection, "raise_horizon", collect_and_raise)
    table.collect()
    assert table.deleted == []
    assert table.leaf_paths("root", OLD) == ["a", "b"]


def test_an_expired_hold_ends_after_a_margin(table: Table) -> None:
    table.hold(seconds=10)
    table.clock.now_ms += 10_000 + MARGIN_MS - 1
    assert table.collect().files == 0
    table.clock.now_ms += 1
    assert table.collect().files == 2
    assert table.store.holds.all() == []


def test_a_reader_that_slept_beyond_its_expiry_fails_if_a_collection_ran(table: Table) -> None:
    table.hold(seconds=10)
    table.clock.now_ms += 10_000 + MARGIN_MS
    claims = find_claims(table.store, table.clock.now_ms)
    assert raise_horizon(table.store, OLD + 1, claims) is None
    with pytest.raises(StateMovedOnError, match="no longer readable"):
        table.store.holds.extend("h", table.clock.now_ms + 1)
    table.clock.now_ms += MARGIN_MS + 1
    assert table.collect().files == 2
    with pytest.raises(StateMovedOnError, match="expired or was released"):
        table.store.holds.extend("h", table.clock.now_ms + 10_000)


def test_a_reader_that_slept_beyond_its_expiry_keeps_a_version_that_is_readable(
    table: Table,
) -> None:
    table.hold(seconds=10)
    table.clock.now_ms += 10_000 + MARGIN_MS
    table.store.holds.extend("h", table.clock.now_ms + 10_000)
    assert table.collect().files == 0


@pytest.mark.parametrize("slept_ms", [0, 20_000 + MARGIN_MS])
def test_an_extension_that_takes_long_is_checked(
    table: Table, monkeypatch: pytest.MonkeyPatch, slept_ms: int
) -> None:
    table.hold(seconds=10)
    port = table.store._holds
    extend: Callable[[str, int], bool] = port.extend

    def sleep_and_extend(hold_id: str, expiry_ms: int) -> bool:
        monkeypatch.undo()
        table.clock.now_ms += slept_ms
        if slept_ms:
            assert table.collect().files == 2
        return extend(hold_id, expiry_ms)

    monkeypatch.setattr(type(port), "extend", lambda _, *given: sleep_and_extend(*given))
    later_ms = table.clock.now_ms + 1_000_000
    if slept_ms:
        with pytest.raises(StateMovedOnError, match="was released"):
            table.store.holds.extend("h", later_ms)
    else:
        table.store.holds.extend("h", later_ms)


def test_an_expiry_never_moves_back_and_an_id_keeps_its_version(table: Table) -> None:
    table.hold(seconds=100)
    table.hold(seconds=10)
    [hold] = table.store.holds.all()
    assert hold.expiry_ms == table.clock.now_ms + 100_000
    with pytest.raises(StateMovedOnError, match=f"keeps version {OLD}, not {OLD + 1}"):
        table.hold(version=OLD + 1)


def test_holds_of_an_older_version_of_sleeper_count(table: Table) -> None:
    from sleeper.statestore.transactions.holds import CreateHold

    for name in ("old", "released"):
        table.commit(CreateHold(name, "a reader", OLD, table.clock.now_ms + 10_000))
    table.store.release_hold("released")
    number = table.number()
    table.store.release_hold("missing")
    assert table.number() == number
    assert [hold.id for hold in table.store.holds.all()] == ["old"]
    assert table.collect().files == 0
    table.clock.now_ms += 10_000 + MARGIN_MS
    assert table.collect().files == 2
