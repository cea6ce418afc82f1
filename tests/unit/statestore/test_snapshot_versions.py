"""Loads and versions of snapshot tables, as transactions on a state."""

import itertools
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.garbage_collection.collection import collect_garbage
from sleeper.garbage_collection.snapshot_versions import (
    ExpiryReport,
    VersionPolicy,
    expire_versions,
    find_policy,
)
from sleeper.partitions.partition import tree_from_split_points
from sleeper.properties.values import TableProperties, instance_properties, table_properties
from sleeper.runs.commit import is_overtaken
from sleeper.schema.model import schema_to_json
from sleeper.statestore.holds import MARGIN_MS, Hold
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.transactions.add_files import NewFile
from sleeper.statestore.transactions.compaction_jobs import CommitCompaction
from sleeper.statestore.transactions.restore import ReinitialiseTable, RestoreVersion, UndoJob
from sleeper.statestore.transactions.snapshot_loads import (
    BeginLoad,
    ExpireSnapshots,
    PublishSnapshot,
)
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.statestore.transactions.transaction import Outcome, Status
from sleeper.tables import TableId
from tests.examples import examples
from tests.tables.state_table import ROOT, SCHEMA, StateTable, data_file

NEWEST = VersionPolicy()
DAY_MS = 24 * 3600 * 1000


def properties(**values: str) -> TableProperties:
    """Returns properties of a table without a delay of collection."""
    return table_properties(
        {
            "sleeper.table.name": "t",
            "sleeper.table.id": "01234567",
            "sleeper.table.schema": schema_to_json(SCHEMA),
            "sleeper.table.gc.delay.minutes": "0",
            **{f"sleeper.table.snapshot.{name}": value for name, value in values.items()},
        },
        instance_properties({"sleeper.id": "i"}),
    )


WITHOUT_DELAY = properties()


class SnapshotTable(StateTable):
    """A snapshot table. A load `a` has the file `a`."""

    def begin(self) -> int:
        return self._commit(BeginLoad())

    def publish(self, load: str, begun: int, *paths: str) -> Outcome:
        files = tuple(NewFile(data_file(path), ((ROOT, 10),)) for path in paths)
        return self.commit(PublishSnapshot(load, self.clock.now_ms, files, begun=begun))

    def load(self, load: str, *paths: str) -> int:
        number = self.publish(load, self.begin(), *(paths or (load,))).number
        assert number is not None
        return number

    def paths(self, version: int | None = None) -> list[str]:
        with self.store.reading(version) as state:
            state.check_has_rows()
            return sorted(file.path for file in state.files.all())

    def versions(self) -> list[int]:
        with self.store.reading() as state:
            return [version.number for version in state.snapshots.versions()]

    def expire(self, policy: VersionPolicy = NEWEST) -> ExpiryReport:
        return expire_versions(self.store, policy, self.clock)

    def collect(self) -> list[str]:
        deleted: list[str] = []
        table_id = TableId("01234567")
        collect_garbage(table_id, self.store, WITHOUT_DELAY, deleted.extend, self.clock)
        return sorted(path for path in deleted if not path.endswith(".sketches"))

    def compact(self, *inputs: str, output: str) -> None:
        job = f"compact-{output}"
        assert not self.assign(job, *inputs).refused
        commit = CommitCompaction(job, ROOT, inputs, data_file(output), self.clock.now_ms)
        assert not self.commit(commit).refused

    def hold(self, version: int, seconds: int = 60) -> None:
        until_ms = self.clock.now_ms + seconds * 1000
        hold = Hold(f"hold-{version}", "a reader", version, until_ms)
        self.store.holds.take(hold, is_new=True)


def make_table(folder: Path) -> SnapshotTable:
    table = SnapshotTable(folder, "embedded")
    tree = tuple(tree_from_split_points(SCHEMA, ()))
    table.store.commit_or_raise(
        InitialiseTable(schema_to_json(SCHEMA), tree, table_type="snapshot")
    )
    return table


@pytest.fixture
def table(tmp_path: Path) -> SnapshotTable:
    return make_table(tmp_path)


def test_a_load_replaces_all_files_under_one_number(table: SnapshotTable) -> None:
    first = table.load("a", "a1", "a2")
    second = table.load("b")
    assert (table.paths(), table.paths(first), table.paths(second)) == (["b"], ["a1", "a2"], ["b"])
    assert table.paths(second - 1) == ["a1", "a2"]
    assert table.versions() == [second, first]


def test_there_is_nothing_to_read_before_the_first_load(table: SnapshotTable) -> None:
    begun = table.begin()
    for version in (None, begun):
        with pytest.raises(InvalidRequestError, match="no snapshot yet"):
            table.paths(version)
    assert not table.publish("empty", begun).refused
    assert table.paths() == []


def test_a_load_never_replaces_one_that_began_later(table: SnapshotTable) -> None:
    early, late = table.begin(), table.begin()
    number = table.publish("late", late, "b").number
    refused = table.publish("early", early, "a")
    assert refused.reason == (
        f"load early began at transaction {early}, and load late, which began later, at {late}, "
        f"has published version {number}"
    )
    assert table.paths() == ["b"]


def test_a_load_may_replace_one_that_began_earlier_and_published_meanwhile(
    table: SnapshotTable,
) -> None:
    early, late = table.begin(), table.begin()
    assert not table.publish("early", early, "a").refused
    assert not table.publish("late", late, "b").refused
    assert table.paths() == ["b"]


def test_a_repeated_load_is_already_done(table: SnapshotTable) -> None:
    begun = table.begin()
    first = table.publish("a", begun, "a")
    table.load("b")
    again = table.publish("a", begun, "a")
    assert (again.status, again.number) == (Status.ALREADY_DONE, first.number)
    assert table.paths() == ["b"]


def test_files_are_added_to_tables_only_and_loads_replace_snapshot_tables_only(
    table: SnapshotTable, tmp_path: Path
) -> None:
    assert "a load replaces all" in table.ingest("x").reason
    (tmp_path / "other").mkdir()
    other = SnapshotTable(tmp_path / "other", "embedded")
    other.initialise()
    assert "not a snapshot table" in other.commit(BeginLoad("x")).reason
    assert "not a snapshot table" in other.publish("x", 1, "x").reason
    assert "not a snapshot table" in other.commit(ExpireSnapshots((1,))).reason
    assert "expected a number from 1" in table.publish("x", 99, "x").reason


def test_a_compaction_of_a_replaced_version_is_refused(table: SnapshotTable) -> None:
    table.load("a", "a1", "a2")
    assert not table.assign("job", "a1", "a2").refused
    table.load("b")
    commit = CommitCompaction("job", ROOT, ("a1", "a2"), data_file("a"), table.clock.now_ms)
    assert table.commit(commit).refused
    assert table.paths() == ["b"]


def test_only_the_newest_version_stays_by_default_and_the_files_of_others_are_collected(
    table: SnapshotTable,
) -> None:
    first = table.load("a")
    second = table.load("b")
    assert table.collect() == []
    assert [each.version.number for each in table.expire().expired] == [first]
    assert table.versions() == [second]
    with pytest.raises(InvalidRequestError, match=f"snapshot version {first} expired at"):
        table.paths(first)
    with pytest.raises(StateMovedOnError):
        table.hold(first)
    assert table.collect() == ["a"]
    assert table.paths() == ["b"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, NEWEST),
        ({"min.versions": "0"}, NEWEST),  # without a time to live, the newest never expires
        ({"min.versions": "3"}, VersionPolicy(None, 3)),
        ({"ttl": "2d"}, VersionPolicy(2 * DAY_MS, 0)),
        ({"ttl": "2d", "min.versions": "1"}, VersionPolicy(2 * DAY_MS, 1)),
    ],
)
def test_properties_choose_the_versions_that_stay(
    values: dict[str, str], expected: VersionPolicy
) -> None:
    assert find_policy(properties(**values)) == expected


def test_replaced_versions_stay_for_the_delay(table: SnapshotTable) -> None:
    table.load("a")
    table.load("b")
    delayed = VersionPolicy(delay_ms=60_000)
    table.clock.now_ms += 59_999
    assert table.expire(delayed).expired == ()
    table.clock.now_ms += 1
    assert len(table.expire(delayed).expired) == 1


def test_versions_expire_by_age_with_the_newest_unless_some_must_stay(
    table: SnapshotTable,
) -> None:
    numbers = []
    for load in ("a", "b", "c"):
        numbers.append(table.load(load))
        table.clock.now_ms += 1_000
    table.expire(VersionPolicy(ttl_ms=2_500, versions_min=0))
    assert table.versions() == [numbers[2], numbers[1]]
    table.clock.now_ms += 10_000
    table.expire(VersionPolicy(ttl_ms=2_500, versions_min=1))
    assert table.versions() == [numbers[2]]
    table.expire(VersionPolicy(ttl_ms=2_500, versions_min=0))
    assert table.versions() == []
    with pytest.raises(InvalidRequestError, match=f"newest, version {numbers[2]}, expired"):
        table.paths()
    assert table.collect() == ["a", "b", "c"]
    table.load("d")
    assert table.paths() == ["d"]


def test_versions_do_not_expire_early_because_the_clock_of_a_writer_was_ahead(
    table: SnapshotTable,
) -> None:
    policy = VersionPolicy(ttl_ms=DAY_MS, versions_min=0, delay_ms=1_000)
    table.load("a")
    table.clock.now_ms += 2 * DAY_MS
    table.begin()
    table.clock.now_ms -= 2 * DAY_MS
    assert table.expire(policy).expired == ()
    table.clock.now_ms += DAY_MS - 1
    second = table.load("b")  # under the time of the log
    assert table.expire(policy).expired == ()
    table.clock.now_ms += DAY_MS
    assert table.expire(policy).expired == ()
    table.clock.now_ms += DAY_MS
    assert table.expire(policy).expired != ()
    assert table.versions() == [second]
    table.clock.now_ms += DAY_MS
    table.expire(policy)
    assert table.versions() == []


def test_replaced_versions_expire_without_delay_if_the_clock_is_behind(
    table: SnapshotTable,
) -> None:
    table.load("a")
    second = table.load("b")
    table.clock.now_ms -= 1_000
    table.expire()
    assert table.versions() == [second]


def test_a_hold_expires_by_the_time_of_the_log(table: SnapshotTable) -> None:
    first, second = table.load("a"), table.load("b")
    table.hold(first, seconds=60)
    table.clock.now_ms += 60_000 + MARGIN_MS
    table.begin()
    table.clock.now_ms -= 60_000 + MARGIN_MS  # the clock of this process is behind
    table.expire()
    assert table.versions() == [second]


def test_an_overtaken_load_is_rejected_also_when_the_later_one_expired(
    table: SnapshotTable,
) -> None:
    early = PublishSnapshot("early", table.clock.now_ms, (), begun=table.begin())
    assert not is_overtaken(table.store, early)
    table.load("late")
    table.expire(VersionPolicy(ttl_ms=0, versions_min=0))
    assert table.commit(early).refused
    assert is_overtaken(table.store, early)


def test_a_hold_keeps_its_version_and_none_after_it(table: SnapshotTable) -> None:
    first, second = table.load("a"), table.load("b")
    third = table.load("c")
    table.hold(first)
    report = table.expire()
    assert [each.version.number for each in report.expired] == [second]
    assert [each.version.number for each in report.held] == [first]
    assert table.collect() == ["b"]
    assert table.paths(first) == ["a"]
    table.store.holds.release([f"hold-{first}"])
    table.expire()
    assert table.collect() == ["a"]
    assert table.versions() == [third]


def test_a_hold_on_the_next_version_keeps_no_earlier_one(table: SnapshotTable) -> None:
    first, second = table.load("a"), table.load("b")
    table.hold(second)
    table.load("c")
    report = table.expire()
    assert [each.version.number for each in report.expired] == [first]
    assert [each.version.number for each in report.held] == [second]


def test_a_hold_from_before_an_expiry_keeps_all_files_of_its_load_since_its_version(
    table: SnapshotTable,
) -> None:
    """A read of a later version of the load shares the hold, and needs the compacted file."""
    first = table.load("a", "a1", "a2")
    table.compact("a1", "a2", output="a")
    table.load("b")
    table.log.before_next_append = lambda: table.hold(first)
    table.expire()
    assert table.collect() == []
    table.store.holds.release([f"hold-{first}"])
    assert table.collect() == ["a", "a1", "a2"]


def test_the_newest_version_expires_under_a_floor_and_its_readers_keep_its_files(
    table: SnapshotTable,
) -> None:
    number = table.load("a")
    table.store.holds.write_floor("floor", "reads", number, 60)
    assert len(table.expire(VersionPolicy(ttl_ms=0, versions_min=0)).expired) == 1
    with pytest.raises(InvalidRequestError, match="expired"):
        table.paths()
    assert table.collect() == []
    table.store.holds.write_floor("floor", "reads", table.number(), 60)
    assert table.collect() == ["a"]


def test_an_expired_version_is_not_readable_under_a_hold_from_after_its_collection(
    table: SnapshotTable,
) -> None:
    """Its writer is about to give it up, and others must not read a part of the rows."""
    first, second, _ = table.load("a"), table.load("b"), table.load("c")
    table.hold(first)  # so the horizon stays below
    table.expire()
    assert table.collect() == ["b"]
    table.store.holds.write_floor("floor", "reads", second, 60)
    with pytest.raises(InvalidRequestError, match=f"snapshot version {second} expired"):
        table.paths(second)


def test_a_floor_keeps_replaced_versions_from_its_own_on(table: SnapshotTable) -> None:
    first, second, _ = table.load("a"), table.load("b"), table.load("c")
    table.store.holds.write_floor("floor", "reads", second, 60)
    report = table.expire()
    assert [each.version.number for each in report.expired] == [first]
    assert [each.version.number for each in report.held] == [second]
    assert table.collect() == ["a"]


def test_a_collection_names_the_version_that_keeps_files(table: SnapshotTable) -> None:
    first = table.load("a")
    table.load("b")

    def preview() -> tuple[str | None, int]:
        table_id = TableId("01234567")
        report = collect_garbage(
            table_id, table.store, WITHOUT_DELAY, list, table.clock, dry_run=True
        )
        return report.blocker, report.files

    assert preview() == (f"version {first}, which has not expired", 0)
    table.expire()
    assert preview() == (None, 1)


def test_a_hold_within_a_version_keeps_it(table: SnapshotTable) -> None:
    table.load("a1", "a1", "a2")
    table.compact("a1", "a2", output="a")
    within = table.number()
    table.load("b")
    table.hold(within)
    assert table.expire().expired == ()
    table.clock.now_ms += 60_000 + MARGIN_MS
    assert len(table.expire().expired) == 1
    assert table.collect() == ["a", "a1", "a2"]


def test_the_inputs_of_a_compaction_stay_until_their_version_expires(
    table: SnapshotTable,
) -> None:
    number = table.load("a", "a1", "a2")
    table.compact("a1", "a2", output="a")
    assert table.collect() == []
    assert (table.paths(number), table.paths()) == (["a1", "a2"], ["a"])


def test_a_restore_publishes_the_old_rows_as_a_version(table: SnapshotTable) -> None:
    first = table.load("a")
    early = table.begin()
    table.load("b")
    restored = table.commit(RestoreVersion(first)).number
    assert restored is not None
    assert table.versions()[0] == restored
    assert table.publish("early", early, "x").refused
    table.expire()
    assert table.collect() == ["b"]
    assert table.paths() == ["a"]


def test_a_version_that_is_not_readable_cannot_be_restored(table: SnapshotTable) -> None:
    begun = table.begin()
    first = table.publish("a", begun, "a").number or 0
    assert "no snapshot yet" in table.commit(RestoreVersion(begun)).reason
    table.load("b")
    table.expire()
    refused = table.commit(RestoreVersion(first))
    assert f"{first} is no longer readable: snapshot version {first} expired" in refused.reason


def test_an_undo_is_refused_and_an_emptied_table_has_a_version(table: SnapshotTable) -> None:
    table.load("a")
    assert "replace all rows" in table.commit(UndoJob("a")).reason
    assert not table.commit(ReinitialiseTable()).refused
    assert table.paths() == []


def test_a_copy_of_a_version_begins_with_it(table: SnapshotTable, tmp_path: Path) -> None:
    begun = table.begin()
    table.load("a")
    second = table.load("b")
    table.load("c")
    assert read_copy(table, second + 1, tmp_path / "loaded.db") == ([second + 1], ["b"])
    assert read_copy(table, begun, tmp_path / "empty.db") == ([], [])


def read_copy(table: SnapshotTable, version: int, target: Path) -> tuple[list[int], list[str]]:
    table.store.copy_version(version, target)
    with closing(sqlite3.connect(target)) as connection:
        copy = TableState(connection)
        numbers = [version.number for version in copy.snapshots.versions()]
        return numbers, [file.path for file in copy.files.all()]


def test_the_end_of_the_newest_version_is_known_after_the_next_load(table: SnapshotTable) -> None:
    table.load("a")
    table.expire(VersionPolicy(ttl_ms=0, versions_min=0))
    ended = table.number()
    table.collect()
    table.load("b")
    table.collect()
    with pytest.raises(InvalidRequestError, match="the newest, version 3, expired"):
        table.paths(ended)


class Model:
    """The files of each version that the table has published."""

    def __init__(self, table: SnapshotTable) -> None:
        self.table = table
        self.unique = itertools.count()
        self.files: dict[int, list[str]] = {}
        self.held: set[int] = set()
        self.collected: set[str] = set()

    def some_version(self, choice: int) -> int | None:
        versions = self.table.versions()
        return versions[choice % len(versions)] if versions else None

    def load(self, choice: int) -> None:
        paths = [f"f{next(self.unique)}" for _ in range(choice % 4)]
        outcome = self.table.publish(f"l{next(self.unique)}", self.table.begin(), *paths)
        self.files[outcome.number or 0] = sorted(paths)

    def overlap(self, _: int) -> None:
        early = self.table.begin()
        self.load(1)
        assert self.table.publish(f"l{next(self.unique)}", early, "never").refused

    def compact(self, _: int) -> None:
        if self.table.versions() and len(self.table.paths()) > 1:
            self.table.compact(*self.table.paths(), output=f"f{next(self.unique)}")

    def hold(self, choice: int) -> None:
        if (version := self.some_version(choice)) is not None:
            self.table.hold(version, 1_000_000)
            self.held.add(version)

    def release(self, _: int) -> None:
        if self.held:
            self.table.store.holds.release([f"hold-{self.held.pop()}"])

    def restore(self, choice: int) -> None:
        if (version := self.some_version(choice)) is not None:
            outcome = self.table.commit(RestoreVersion(version))
            if outcome.status is Status.APPLIED:
                self.files[outcome.number or 0] = self.files[version]

    def pass_time(self, choice: int) -> None:
        self.table.clock.now_ms += choice

    def expire(self, choice: int) -> None:
        ttl_ms = 5 if choice % 2 else None
        kept = max(choice % 3, ttl_ms is None)
        before = self.table.versions()
        self.table.expire(VersionPolicy(ttl_ms, kept))
        assert self.table.versions()[:kept] == before[:kept]
        assert self.held <= set(self.table.versions())

    def collect(self, _: int) -> None:
        self.collected |= set(self.table.collect())


STEPS = (
    Model.load,
    Model.overlap,
    Model.compact,
    Model.hold,
    Model.release,
    Model.restore,
    Model.pass_time,
    Model.expire,
    Model.collect,
)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9)), max_size=30))
def test_every_version_that_has_not_expired_keeps_its_files(
    steps: list[tuple[Callable[[Model, int], None], int]],
) -> None:
    with TemporaryDirectory() as folder:
        model = Model(make_table(Path(folder)))
        for step, choice in steps:
            step(model, choice)
            for number in model.table.versions():
                assert model.table.paths(number) == model.files[number]
                assert model.collected.isdisjoint(model.files[number])
