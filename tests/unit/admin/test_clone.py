"""Clones of tables: the same rows, files that stay, and clones whose process dies."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper.admin.clone import clone_table
from sleeper.admin.properties import change_table_properties
from sleeper.admin.tables import accept_time, delete_table
from sleeper.clock import system_clock
from sleeper.errors import (
    ConflictError,
    DataError,
    InvalidRequestError,
    NotFoundError,
    StateMovedOnError,
)
from sleeper.garbage_collection.service import (
    collect_table,
    collect_table_orphans,
    finish_deletions,
    sweep_abandoned,
)
from sleeper.local.instance import open_local_instance
from sleeper.purging.report import ObjectState, PurgedObject
from sleeper.purging.service import purge_table
from sleeper.statestore.fold import DAY_MS
from sleeper.statestore.holds import Holds
from sleeper.tables import TableId, TableState
from tests.clock import FakeClock
from tests.ports import with_ports
from tests.stateful.crashing import Crash, CrashPlan, make_crashing
from tests.tables.opened import KEY_AND_VALUE, compact_fully, read_keys

PROPERTIES = {
    "sleeper.table.compaction.files.batch.size": "2",
    "sleeper.table.gc.delay.minutes": "0",
}


class Tables:
    """An instance in a folder with one table "a", which can be opened again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock(system_clock())
        sleeper.create_instance(folder).close()
        self.open()
        self.api.create_table("a", KEY_AND_VALUE, PROPERTIES, split_points=[50])
        self.ingest("a", range(0, 100, 2))
        self.ingest("a", range(1, 100, 2))
        self.api.table("a").delete(ranges=[(0, 10)])

    def open(self) -> None:
        self.instance = open_local_instance(self.folder, self.clock)
        self.api = sleeper.Instance(self.instance)

    def reopen(self) -> None:
        self.instance.close()
        self.open()

    def ingest(self, name: str, keys: range) -> None:
        rows = pa.table({"key": list(keys), "value": ["v"] * len(keys)})
        self.api.table(name).ingest(rows)

    def keys(self, name: str, as_of: int | None = None) -> list[int]:
        return read_keys(self.api.table(name), as_of)

    def compact(self, name: str) -> None:
        compact_fully(self.instance, name)

    def collect(self) -> None:
        """Collects all tables, past all holds and delays, as a day of background work does."""
        self.clock.now_ms += DAY_MS
        for _ in range(2):  # a clone unpins, then the owner collects
            for ref in self.instance.tables.index.list():
                collect_table(self.instance, ref.name)
            finish_deletions(self.instance)
        sweep_abandoned(self.instance)

    def id(self, name: str) -> TableId:
        return self.instance.tables.index.find(name).id

    def pins(self, name: str) -> dict[str, int]:
        with self.instance.table(name).state.reading() as state:
            return dict(state.collection.pins())

    def data_files(self, table_id: str) -> list[str]:
        files = self.folder.glob(f"{table_id}/data/partition_*/*.parquet")
        return sorted(file.relative_to(self.folder).as_posix() for file in files)

    def table_folders(self) -> set[str]:
        return {path.name for path in self.folder.glob("[0-9a-f]" * 8)}


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    made = Tables(tmp_path / "i")
    yield made
    made.instance.close()


ROWS = list(range(10, 100))


def test_a_clone_has_the_rows_and_its_own_changes(tables: Tables) -> None:
    version = tables.api.table("a").version
    clone = tables.api.clone_table("a", "b")
    assert clone.version == version
    assert tables.keys("b") == ROWS
    assert clone.query(keys=[[3], [33]]).to_arrow()["key"].to_pylist() == [33]
    count = tables.api.sql("SELECT count(*) AS n FROM b").to_arrow()["n"].to_pylist()
    assert count == [len(ROWS)]
    tables.ingest("b", range(5))
    tables.api.table("a").delete(ranges=[(20, None)])
    assert tables.keys("b") == [*range(5), *ROWS]
    assert tables.keys("a") == list(range(10, 20))
    tables.compact("b")
    assert tables.keys("b") == [*range(5), *ROWS]
    assert len(tables.data_files(tables.id("a"))) == 2


def test_a_clone_of_an_old_version_begins_there(tables: Tables) -> None:
    clone = tables.api.clone_table("a", "b", as_of=2)
    assert clone.version == 2
    assert [entry.number for entry in clone.history()] == [2, 1]
    tables.ingest("b", range(1))
    assert clone.history(1)[0].number == 3
    assert tables.keys("b", 2) == list(range(0, 100, 2))
    with pytest.raises(InvalidRequestError, match="oldest readable version is 2"):
        tables.keys("b", 1)


def test_a_clone_shows_the_latest_rows_as_its_source(tables: Tables) -> None:
    tables.api.create_table("latest", KEY_AND_VALUE, {**PROPERTIES, "sleeper.table.rows": "latest"})
    for _ in range(2):
        tables.ingest("latest", range(3))
    tables.api.clone_table("latest", "b")
    tables.ingest("b", range(2, 4))
    assert tables.keys("b") == [0, 1, 2, 3]
    tables.compact("b")
    assert tables.keys("b") == [0, 1, 2, 3]
    values = [tables.instance.table(name).properties().values for name in ("b", "latest")]
    assert {
        name for name in values[0].keys() | values[1] if values[0].get(name) != values[1].get(name)
    } == {"sleeper.table.name", "sleeper.table.id"}


def test_a_clone_has_the_properties_and_processing_of_the_version(tables: Tables) -> None:
    version = tables.api.table("a").version
    change_table_properties(
        tables.instance, "a", {"sleeper.table.compaction.files.batch.size": "7"}
    )
    clone_table(tables.instance, "a", "b", version)
    properties = tables.instance.table("b").properties().values
    source = tables.instance.table("a").properties().values
    changed = {name for name in {*properties, *source} if properties.get(name) != source.get(name)}
    assert changed == {"sleeper.table.name", "sleeper.table.id"}


def test_a_taken_name_and_an_unreadable_version_are_refused(tables: Tables) -> None:
    tables.api.clone_table("a", "b")
    before = tables.instance.tables.index.list(), tables.table_folders()
    with pytest.raises(ConflictError, match="table 'b' already exists"):
        tables.api.clone_table("a", "b")
    with pytest.raises(InvalidRequestError, match="version 99 does not exist yet"):
        tables.api.clone_table("a", "c", as_of=99)
    with pytest.raises(InvalidRequestError, match="table name '/'"):
        tables.api.clone_table("a", "/")
    with pytest.raises(NotFoundError, match="'none'"):
        tables.api.clone_table("none", "c")
    assert (tables.instance.tables.index.list(), tables.table_folders()) == before


def test_shared_files_stay_while_one_of_the_tables_needs_them(tables: Tables) -> None:
    tables.api.clone_table("a", "b")
    shared = tables.data_files(tables.id("a"))
    assert tables.pins("a") == {tables.id("b"): len(shared)}
    tables.compact("a")
    tables.collect()
    assert set(shared) < set(tables.data_files(tables.id("a")))
    assert tables.keys("b") == tables.keys("a") == ROWS
    tables.compact("b")
    tables.collect()
    assert not set(shared) & set(tables.data_files(tables.id("a")))
    assert tables.pins("a") == {}
    assert tables.keys("b") == tables.keys("a") == ROWS


def test_files_that_the_clone_no_longer_needs_stay_for_the_owner(tables: Tables) -> None:
    tables.api.clone_table("a", "b")
    shared = tables.data_files(tables.id("a"))
    tables.compact("b")
    tables.collect()
    assert tables.data_files(tables.id("a")) == shared
    assert tables.pins("a") == {}
    assert tables.keys("a") == ROWS


def test_files_of_several_clones_go_with_the_last(tables: Tables) -> None:
    for name in ("b", "c"):
        tables.api.clone_table("a", name)
    shared = tables.data_files(tables.id("a"))
    tables.compact("a")
    delete_table(tables.instance, "b", now=True)
    tables.collect()
    assert set(tables.pins("a")) == {tables.id("c")}
    assert tables.keys("c") == ROWS
    delete_table(tables.instance, "c", now=True)
    tables.collect()
    assert tables.pins("a") == {}
    assert not set(shared) & set(tables.data_files(tables.id("a")))
    assert tables.table_folders() == {tables.id("a")}


def test_a_deleted_owner_keeps_what_clones_need(tables: Tables) -> None:
    tables.compact("a")  # the first files are not shared
    tables.api.clone_table("a", "b")
    owner = tables.id("a")
    with tables.instance.table("b").state.reading() as state:
        shared = sorted(state.files.paths())
    delete_table(tables.instance, "a", now=True)
    tables.collect()
    tables.reopen()
    assert tables.data_files(owner) == shared
    assert tables.keys("b") == ROWS
    # months later the clone compacts its files
    tables.clock.now_ms += 20 * DAY_MS
    tables.collect()
    tables.clock.now_ms += 20 * DAY_MS
    accept_time(tables.instance, "b")
    tables.ingest("b", range(0, 60, 59))
    tables.compact("b")
    tables.collect()
    assert tables.table_folders() == {tables.id("b")}
    assert tables.instance.tables.index.list(TableState.DELETING) == ()
    assert tables.keys("b") == sorted([*ROWS, 0, 59])


def test_a_clone_of_a_clone_pins_files_at_their_owners(tables: Tables) -> None:
    owner = tables.id("a")
    tables.api.clone_table("a", "b")
    tables.ingest("b", range(100, 103))
    delete_table(tables.instance, "a", now=True)
    tables.collect()
    tables.api.clone_table("b", "c")
    middle = tables.id("b")
    delete_table(tables.instance, "b", now=True)
    tables.collect()
    assert tables.keys("c") == [*ROWS, 100, 101, 102]
    assert tables.table_folders() == {owner, middle, tables.id("c")}
    tables.compact("c")
    tables.collect()
    assert tables.keys("c") == [*ROWS, 100, 101, 102]
    assert tables.table_folders() == {tables.id("c")}


def test_orphan_collections_leave_shared_files(tables: Tables) -> None:
    tables.api.clone_table("a", "b")
    tables.compact("a")
    tables.collect()
    tables.clock.now_ms += 20 * DAY_MS
    for name in ("a", "b"):
        collect_table_orphans(tables.instance, name)
    tables.reopen()
    assert tables.keys("b") == tables.keys("a") == ROWS


def test_a_lost_row_of_a_clone_keeps_its_pins(tables: Tables) -> None:
    tables.api.clone_table("a", "b")
    clone = tables.id("b")
    with tables.instance.storage.root.sink(f"{clone}/data/partition_root/x.parquet") as file:
        file.write(b"x")
    index = tables.instance.tables.index
    with suppress(NotFoundError):
        delete_table(tables.instance, "b", now=True)
    index.remove(clone)
    tables.compact("a")
    collect_table(tables.instance, "a")
    assert set(tables.pins("a")) == {clone}


def test_a_purge_waits_for_a_deleted_clone_until_its_deletion_is_final(tables: Tables) -> None:
    tables.api.clone_table("a", "b")
    tables.api.delete_table("b")
    deleted_ms = tables.clock()
    tables.clock.now_ms += 3_600_000
    seen: list[PurgedObject] = []
    seconds: list[float] = []

    def listen(first: PurgedObject, _: int) -> None:
        seen.append(first)
        if len(seen) == 3:
            delete_table(tables.instance, "b", now=True)

    report = purge_table(
        tables.instance, "a", (), True, listen, seconds.append, timeout_seconds=600
    )
    assert report.is_complete
    assert len(seen) == len(seconds) == 3
    assert seen[0].reason == (
        "needed by clone b, which is deleted and can be brought back "
        "(sleeper table delete b --now ends that)"
    )
    assert seen[0].until_ms == deleted_ms + 24 * 3_600_000


def test_a_purge_waits_no_longer_than_its_timeout(tables: Tables) -> None:
    tables.api.clone_table("a", "b")
    tables.clock.now_ms += 3_600_000
    report = tables.api.table("a").purge(wait=True, timeout_seconds=0.2)
    assert not report.is_complete
    assert "needed by clone b" in {each.reason for each in report.objects}


def test_a_purge_names_what_clones_keep(tables: Tables) -> None:
    tables.api.clone_table("a", "b")
    shared = tables.data_files(tables.id("a"))
    tables.clock.now_ms += 3_600_000
    report = purge_table(tables.instance, "a")
    kept = {o.object: o.reason for o in report.objects if o.state is ObjectState.KEPT}
    assert kept == {min(shared): "needed by clone b"} | {
        path: "needed by clone b" for path in shared if path in kept
    }
    report = purge_table(tables.instance, "b")
    assert report.is_complete
    found = {o.object: (o.state, o.reason) for o in report.objects if o.object in shared}
    assert set(found.values()) == {(ObjectState.REMAINS, "owned by table a")}
    report = purge_table(tables.instance, "a")
    assert report.is_complete
    assert kept.keys() <= {o.object for o in report.objects if o.state is ObjectState.GONE}
    assert tables.keys("a") == tables.keys("b") == ROWS


@pytest.mark.parametrize("is_cloned", [False, True])
def test_a_deleted_table_with_a_damaged_state_keeps_what_clones_may_need(
    tables: Tables, is_cloned: bool
) -> None:
    tables.api.clone_table("a", "b") if is_cloned else tables.api.create_table("b", KEY_AND_VALUE)
    owner = tables.id("a")
    delete_table(tables.instance, "a", now=True)
    tables.instance.close()
    (tables.folder / owner / "state.db").write_bytes(b"damaged" * 1000)
    tables.open()
    if is_cloned:
        with pytest.raises(DataError):
            finish_deletions(tables.instance)
        assert tables.keys("b") == ROWS
        delete_table(tables.instance, "b", now=True)
        with suppress(DataError):  # that of the owner, which is first
            finish_deletions(tables.instance)
    finish_deletions(tables.instance)
    assert owner not in tables.table_folders()


# processes that die


def crashed_clone(tables: Tables, crash_at: int) -> str | None:
    """Clones until the numbered call of a port. Returns where it died; None if it did not."""
    plan = CrashPlan(left=crash_at)
    try:
        clone_table(make_crashing(tables.instance, plan), "a", "b")
    except Crash:
        tables.reopen()
        return plan.where
    return None


def test_a_clone_whose_process_died_anywhere_is_repeated(tables: Tables) -> None:
    places = []
    for crash_at in range(1, 100):
        where = crashed_clone(tables, crash_at)
        if where is None:
            break
        places.append(where)
        is_complete = "b" in tables.api.tables()
        if not is_complete:
            tables.api.clone_table("a", "b")
        assert tables.keys("b") == ROWS
        clone = tables.id("b")
        tables.clock.now_ms += 3_600_000  # the hold of the dead process expires
        if crash_at % 6 == 1:
            tables.compact("a")
        tables.collect()
        assert set(tables.pins("a")) == {clone}
        assert tables.keys("b") == ROWS
        assert tables.table_folders() == {tables.id("a"), clone}
        delete_table(tables.instance, "b", now=True)
        tables.collect()
        assert tables.pins("a") == {}
        assert tables.table_folders() == {tables.id("a")}
    assert {"after state.commit_or_raise", "after tables.create", "after install state"} < {*places}
    assert "after table_properties.write" in places
    assert "before tables.replace" in places


def test_an_unfinished_clone_is_listed_and_can_be_deleted(tables: Tables) -> None:
    for crash_at in range(1, 100):
        if crashed_clone(tables, crash_at) is None:
            break
        for ref in tables.instance.tables.index.list(TableState.CREATING):
            assert ref.name == "b"
            with pytest.raises(NotFoundError):
                tables.api.table("b")
        with suppress(NotFoundError):  # it died before the row, or when it was complete
            delete_table(tables.instance, "b", now=True)
        tables.clock.now_ms += 3_600_000
        tables.collect()
        assert tables.instance.tables.index.list(TableState.CREATING) == ()
        assert tables.pins("a") == {}
        assert tables.table_folders() == {tables.id("a")}


def test_a_collection_of_a_clone_that_dies_is_finished(tables: Tables) -> None:
    owner = tables.id("a")
    for crash_at in range(1, 30, 2):
        tables.api.clone_table("a", "b")
        tables.compact("b")
        tables.clock.now_ms += DAY_MS
        plan = CrashPlan(left=crash_at)
        try:
            collect_table(make_crashing(tables.instance, plan), "b")
            has_died = False
        except Crash:
            tables.reopen()
            has_died = True
            collect_table(tables.instance, "b")
        assert tables.pins("a") == {}
        assert tables.keys("b") == tables.keys("a") == ROWS
        delete_table(tables.instance, "b", now=True)
        tables.collect()
        assert tables.table_folders() == {owner}
        if not has_died:
            return
    raise AssertionError


def test_a_deletion_of_an_owner_that_dies_is_finished(tables: Tables) -> None:
    tables.api.clone_table("a", "b")
    tables.api.clone_table("a", "c")
    delete_table(tables.instance, "a", now=True)
    for crash_at in range(1, 8):
        plan = CrashPlan(left=crash_at)
        with suppress(Crash):
            finish_deletions(make_crashing(tables.instance, plan))
        tables.reopen()
        assert tables.keys("b") == tables.keys("c") == ROWS


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_table_that_is_deleted_meanwhile_is_not_cloned(tables: Tables, is_finished: bool) -> None:
    owner = tables.id("a")
    create = tables.instance.tables.create

    def delete_then_create(table_id: TableId) -> None:
        delete_table(tables.instance, "a", now=True)
        if is_finished:
            finish_deletions(tables.instance)
        create(table_id)

    racing = with_ports(tables.instance, tables={"create": delete_then_create})
    with pytest.raises(StateMovedOnError, match="was deleted"):
        clone_table(racing, "a", "b")
    tables.reopen()
    assert tables.api.tables() == []
    tables.collect()
    assert owner not in {ref.id for ref in tables.instance.tables.index.list()}


def test_a_clone_that_lost_its_name_is_deleted(tables: Tables) -> None:
    install = tables.instance.tables.install

    def take_name_and_install(table_id: TableId, state: Path) -> None:
        tables.api.create_table("b", KEY_AND_VALUE)
        install(table_id, state)

    racing = with_ports(tables.instance, tables={"install": take_name_and_install})
    with pytest.raises(ConflictError, match="table 'b' already exists"):
        clone_table(racing, "a", "b")
    tables.collect()
    assert tables.pins("a") == {}
    assert tables.table_folders() == {tables.id("a"), tables.id("b")}
    assert tables.keys("b") == []


def test_a_later_clone_of_the_name_takes_over(tables: Tables) -> None:
    install = tables.instance.tables.install

    def clone_and_install(table_id: TableId, state: Path) -> None:
        clone_table(tables.instance, "a", "b")
        install(table_id, state)

    racing = with_ports(tables.instance, tables={"install": clone_and_install})
    with pytest.raises(ConflictError, match="was changed by another"):
        clone_table(racing, "a", "b")
    tables.collect()
    assert set(tables.pins("a")) == {tables.id("b")}
    assert tables.keys("b") == ROWS


def test_the_version_is_kept_while_it_is_cloned(tables: Tables) -> None:
    install, create = tables.instance.tables.install, tables.instance.tables.create
    version = tables.api.table("a").version

    def collect_then_create(table_id: TableId) -> None:
        tables.compact("a")
        collect_table(tables.instance, "a")
        create(table_id)

    def collect_then_install(table_id: TableId, state: Path) -> None:
        collect_table(tables.instance, "a")
        install(table_id, state)

    changed = {"create": collect_then_create, "install": collect_then_install}
    clone_table(with_ports(tables.instance, tables=changed), "a", "b", version)
    assert tables.keys("b") == ROWS
    assert tables.instance.table("a").state.holds.all() == []


def test_an_unreleased_hold_is_no_failure(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise StateMovedOnError("lost")

    monkeypatch.setattr(Holds, "release", refuse)
    assert clone_table(tables.instance, "a", "b").files == 2
