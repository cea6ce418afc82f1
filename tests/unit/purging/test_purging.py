"""Purges: deleted rows are in no object, and the report says what keeps them."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper.clock import system_clock
from sleeper.compaction.plan import compact_table
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.key_files import keys_schema
from sleeper.datafiles.write.file import DataFileWriter, FileSettings
from sleeper.deletion.message import submit_delete
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.files import KeyFile, new_key_path
from sleeper.garbage_collection.service import run_garbage_collection
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.partitions.region import Range, Region, key_region
from sleeper.purging.report import ObjectState, PurgeReport, describe_purge
from sleeper.purging.service import purge_table
from sleeper.reports.output import json_rows
from sleeper.splitting.service import split_table
from sleeper.statestore.holds import MARGIN_MS, Hold
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.holds import CreateFollower, DeleteFollower
from sleeper.statestore.transactions.transaction import Outcome, Transaction
from sleeper.workers.worker import Worker
from tests.clock import FakeClock
from tests.remnants import find_remnants

MINUTE_MS = 60_000
PERSON, SECRET = "key-of-the-person", "secret-of-the-person"
SCHEMA = {
    "rowKeyFields": [{"name": "key", "type": "StringType"}],
    "valueFields": [{"name": "value", "type": "StringType"}],
}


class PurgedTable:
    """A table of a local instance with a fake clock, in which one row is that of a person."""

    def __init__(self, folder: Path, delay_minutes: int = 0, split_points: tuple[str, ...] = ()):
        self.folder = folder
        self.clock = FakeClock(system_clock())
        create_local_instance(folder, "purged", {"sleeper.engine.threads": "1"})
        self.ports = open_local_instance(folder, self.clock)
        self.instance = sleeper.Instance(self.ports)
        properties = {
            "sleeper.table.gc.delay.minutes": str(delay_minutes),
            "sleeper.table.ingest.file.writing.strategy": "one_reference_per_leaf",
        }
        self.table = self.instance.create_table("rows", SCHEMA, properties, list(split_points))
        self.others: list[str] = []

    @property
    def state(self) -> StateStore:
        return self.ports.table("rows").state

    def add_person(self) -> None:
        """Adds two files with the person's rows, one with other rows too, and one without."""
        self.add_others()
        self.ingest([f"{PERSON}-a", PERSON, f"{PERSON}-b"], [SECRET] * 3)
        self.ingest(["b", PERSON, "y"], ["value", SECRET, "value"])
        self.others += ["b", "y"]

    def add_others(self) -> None:
        keys = [f"{letter}{len(self.others)}" for letter in "azkm"]
        self.others += keys
        self.ingest(keys, [f"value of {key}" for key in keys])

    def ingest(self, keys: list[str], values: list[str]) -> None:
        self.table.ingest(pa.table({"key": keys, "value": values}))

    def delete_person(self) -> None:
        self.table.delete(ranges=[(PERSON, f"{PERSON}-z")])

    def purge(self) -> PurgeReport:
        return purge_table(self.ports, "rows")

    def remnants(self, value: str = PERSON) -> list[str]:
        files = [p for p in self.folder.rglob("*") if p.is_file()]
        return find_remnants(((str(p), p.read_bytes()) for p in files), value)

    def keys(self) -> list[str]:
        return sorted(self.table.query().to_arrow()["key"].to_pylist())


@pytest.fixture
def table(tmp_path: Path) -> Iterator[PurgedTable]:
    made = PurgedTable(tmp_path / "instance")
    yield made
    made.instance.close()


def kept(report: PurgeReport) -> list[tuple[str, str | None]]:
    return [(o.object, o.reason) for o in report.objects if o.state is ObjectState.KEPT]


def gone(report: PurgeReport) -> list[str]:
    return [o.object for o in report.objects if o.state is ObjectState.GONE]


def test_a_purged_row_is_in_no_object_of_the_folder(table: PurgedTable) -> None:
    table.add_person()
    table.state.save_snapshot()
    table.delete_person()
    table.state.save_snapshot()
    assert len(table.remnants()) > 4
    report = table.purge()
    assert kept(report) == []
    assert report.is_complete
    assert table.remnants() == table.remnants(SECRET) == []
    assert table.keys() == sorted(table.others)
    assert all(not (table.folder / path).exists() for path in gone(report))
    assert sum(path.endswith(".parquet") for path in gone(report)) >= 2
    assert sum(path.endswith(".zst") for path in gone(report)) == 2


def test_a_purge_of_numbers_leaves_none_of_their_bytes(tmp_path: Path) -> None:
    number = 0x1B2C3D4E5F607182
    schema = {"rowKeyFields": [{"name": "key", "type": "LongType"}], "valueFields": []}
    with sleeper.create_instance(tmp_path / "instance") as instance:
        table = instance.create_table("rows", schema, {"sleeper.table.gc.delay.minutes": "0"})
        table.ingest(pa.table({"key": [1, number]}))
        table.delete(keys=[[number]])
        assert table.purge(keys=[[number]], wait=True).is_complete
        files = [p for p in (tmp_path / "instance").rglob("*") if p.is_file()]
        assert find_remnants(((str(p), p.read_bytes()) for p in files), number) == []
        assert table.query().to_arrow()["key"].to_pylist() == [1]


def test_a_file_is_rewritten_for_another_leaf_too(tmp_path: Path) -> None:
    table = PurgedTable(tmp_path / "instance", split_points=("l",))
    table.ingest([PERSON, "z"], [SECRET, "value"])
    table.delete_person()
    with table.state.reading() as state:
        (first, _) = state.partitions.leaves()
        (file,) = state.files.all()
    create = compact_table(table.ports, "rows", full=True)
    assert create.created == 1  # only the person's leaf
    run_all(table.ports)
    assert file.path in " ".join(table.remnants())
    with table.state.reading() as state:
        assert [r.partition_id for r in state.files.references()] != [first.id]
    assert table.purge().is_complete
    assert table.remnants() == []
    assert table.keys() == ["z"]
    table.instance.close()


def test_the_output_of_a_job_assigned_before_the_delete_is_rewritten(table: PurgedTable) -> None:
    table.add_person()
    compact_table(table.ports, "rows", full=True)
    table.delete_person()
    assert table.purge().is_complete
    assert table.remnants() == []
    assert table.keys() == sorted(table.others)


def test_references_of_split_partitions_are_pushed_down(tmp_path: Path) -> None:
    table = PurgedTable(tmp_path / "instance")
    table.add_person()
    table.delete_person()
    table.ports.tables.properties.change(
        table.ports.table("rows").ref.id, {"sleeper.table.partition.splitting.threshold": "5"}
    )
    assert split_table(table.ports, "rows")[0].leaves > 1
    assert table.purge().is_complete
    assert table.remnants(SECRET) == []  # its key is a split point now
    assert table.keys() == sorted(table.others)
    table.instance.close()


def test_a_hold_keeps_files_until_it_expires(table: PurgedTable) -> None:
    table.add_person()
    table.delete_person()
    expiry_ms = table.clock() + 5 * MINUTE_MS
    table.state.holds.take(Hold("h1", "a reader", table.table.version - 1, expiry_ms))
    report = table.purge()
    held = [o for o in report.objects if o.state is ObjectState.KEPT]
    assert held
    assert all("hold h1 of a reader at version" in str(o.reason) for o in held)
    assert {o.until_ms for o in held} == {expiry_ms + MARGIN_MS}
    assert table.remnants()
    table.clock.now_ms = expiry_ms + MARGIN_MS
    assert table.purge().is_complete
    assert table.remnants() == []


def test_the_retention_of_versions_keeps_files(table: PurgedTable) -> None:
    table.ports.tables.properties.change(
        table.ports.table("rows").ref.id, {"sleeper.table.history.retention": "1h"}
    )
    table.add_person()
    table.delete_person()
    report = table.purge()
    reasons = {(o.reason, o.until_ms) for o in report.objects if o.state is ObjectState.KEPT}
    assert reasons == {("sleeper.table.history.retention", table.clock() + 60 * MINUTE_MS)}
    table.clock.now_ms += 60 * MINUTE_MS
    assert table.purge().is_complete
    assert table.remnants() == []


def test_a_follower_keeps_files_until_it_is_past_them(table: PurgedTable) -> None:
    table.add_person()
    table.state.commit(CreateFollower("copy", table.table.version))
    table.delete_person()
    report = table.purge()
    assert {r for _, r in kept(report)} == {f"follower copy at version {report.number - 2}"}
    assert table.remnants()
    table.state.commit(DeleteFollower("copy"))
    assert table.purge().is_complete
    assert table.remnants() == []


def test_an_entry_of_the_log_with_a_delete_is_kept_for_its_later_transactions(
    table: PurgedTable,
) -> None:
    table.ingest(["a"], ["value"])
    with table.state.reading() as state:
        region, number = key_region(state.schema, [PERSON]), state.number + 1
    follower = CreateFollower("copy", number)
    outcomes = table.state.commit(DeleteRows((region,)), follower)
    assert [each.number for each in outcomes] == [number, number + 1]
    report = table.purge()
    reason = f"follower copy at version {number}"
    assert kept(report) == [(f"log with transaction {number}", reason)]
    table.state.commit(DeleteFollower("copy"))
    assert table.purge().is_complete
    assert table.remnants() == []


def test_the_collection_delay_keeps_files(tmp_path: Path) -> None:
    table = PurgedTable(tmp_path / "instance", delay_minutes=10)
    table.add_person()
    table.delete_person()
    report = table.purge()
    due_ms = {o.until_ms for o in report.objects if o.state is ObjectState.KEPT}
    assert due_ms == {table.clock() + 10 * MINUTE_MS}
    assert {reason for _, reason in kept(report)} == {"sleeper.table.gc.delay.minutes"}
    table.clock.now_ms += 10 * MINUTE_MS
    assert table.purge().is_complete
    assert table.remnants() == []
    table.instance.close()


def test_a_purge_that_waits_ends_when_nothing_is_kept(tmp_path: Path) -> None:
    table = PurgedTable(tmp_path / "instance", delay_minutes=10)
    table.add_person()
    table.delete_person()
    seen = []

    def sleep(seconds: float) -> None:
        table.clock.now_ms += 4 * MINUTE_MS
        seen.append(seconds)

    report = purge_table(table.ports, "rows", wait=True, sleep=sleep)
    assert report.is_complete
    assert len(seen) == 3
    assert table.remnants() == []
    table.instance.close()


def test_a_delete_that_hides_no_row_is_forgotten_with_its_key(table: PurgedTable) -> None:
    table.add_others()
    table.delete_person()
    assert table.remnants()
    assert table.purge().is_complete
    assert table.remnants() == []


def test_rows_that_come_after_the_delete_are_kept(table: PurgedTable) -> None:
    table.add_person()
    table.delete_person()
    table.ingest([PERSON], ["new value"])
    assert table.purge().is_complete
    assert table.remnants(SECRET) == []
    assert table.keys() == sorted([*table.others, PERSON])


def test_a_purge_of_rows_that_are_not_deleted_is_refused(table: PurgedTable) -> None:
    table.add_person()
    with pytest.raises(InvalidRequestError, match="expected deleted rows only"):
        table.table.purge(keys=[[PERSON]])
    table.table.delete(keys=[[PERSON]])
    with pytest.raises(InvalidRequestError, match=f"{PERSON}-a"):
        table.table.purge(ranges=[(PERSON, f"{PERSON}-b")])
    assert table.table.purge(keys=[[PERSON]]).is_complete
    assert set(table.keys()) > {f"{PERSON}-a", f"{PERSON}-b"}


def test_a_purge_of_a_key_leaves_other_deletes_alone(table: PurgedTable) -> None:
    table.ingest(["a", "b"], ["1", "2"])
    table.ingest(["x", "y"], ["3", "4"])
    table.table.delete(keys=[["a"], ["x"]])
    assert table.table.purge(keys=[["a"]]).is_complete
    with table.state.reading() as state:
        left = state.deletes.overlapping(key_region(state.schema, ["x"]))
        assert not state.deletes.overlapping(key_region(state.schema, ["a"]))
        assert [f.rows for f in state.files.all()] == [2, 1]
    assert len(left) == 1


def test_a_purge_of_a_key_removes_the_files_of_rows_that_were_taken_back(
    table: PurgedTable,
) -> None:
    table.add_person()
    table.table.reinitialise()
    assert table.remnants()
    report = table.table.purge(keys=[[PERSON]])
    assert report.is_complete
    assert table.remnants() == []


def test_an_object_of_an_unfinished_run_is_kept(table: PurgedTable) -> None:
    table.add_person()
    table.delete_person()
    with table.state.reading() as state:
        (file, *_) = state.files.all()
    copy = file.path.replace(file.path[-24:-8], "0123456789abcdef")
    (table.folder / copy).write_bytes((table.folder / file.path).read_bytes())
    table.clock.now_ms += MINUTE_MS
    report = table.purge()
    assert [name for name, _ in kept(report)] == [copy]
    (unfinished,) = (o for o in report.objects if o.state is ObjectState.KEPT)
    until_ms = unfinished.until_ms
    assert until_ms is not None
    assert until_ms - table.clock() > 13 * 24 * 60 * MINUTE_MS

    def sleep(_: float) -> None:
        table.clock.now_ms += 5 * 24 * 60 * MINUTE_MS

    report = purge_table(table.ports, "rows", wait=True, sleep=sleep)
    assert report.is_complete
    assert sum(path.startswith("log up to") for path in gone(report)) == 1
    assert copy in gone(report)
    assert table.remnants() == []


def test_a_second_purge_finds_nothing_to_do(table: PurgedTable) -> None:
    table.add_person()
    table.delete_person()
    table.purge()
    number, snapshots = table.table.version, table.state.snapshots()
    report = table.purge()
    assert report.is_complete
    assert not [path for path in gone(report) if path.endswith((".parquet", ".zst"))]
    assert table.table.version == number
    assert table.state.snapshots() == snapshots


def test_a_purge_continues_a_collection_that_died(table: PurgedTable) -> None:
    table.add_person()
    table.delete_person()
    deleted = []

    def die(paths: list[str]) -> None:
        deleted.append(paths)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table.ports.storage.root, "delete", die)
        with pytest.raises(KeyboardInterrupt):
            table.purge()
    assert deleted
    assert table.remnants()
    assert table.purge().is_complete
    assert table.remnants() == []


@pytest.mark.parametrize("failing", [1, 3, 5])
def test_a_purge_continues_after_the_state_store_failed(
    table: PurgedTable, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    table.add_person()
    table.delete_person()
    commit, calls = StateStore.commit, []

    def fail_once(store: StateStore, *transactions: Transaction) -> list[Outcome]:
        calls.append(transactions)
        if len(calls) == failing:
            raise UnavailableError("the state store does not answer")
        return commit(store, *transactions)

    monkeypatch.setattr(StateStore, "commit", fail_once)
    for _ in range(10):
        with contextlib.suppress(UnavailableError):
            if table.purge().is_complete:
                break
        # The message of a failed job returns soon, and its output becomes an orphan.
        table.clock.now_ms += 2 * 24 * 60 * MINUTE_MS
    assert len(calls) > failing
    assert table.remnants() == []
    assert table.keys() == sorted(table.others)


def test_a_purge_continues_after_a_disk_was_full(
    table: PurgedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.add_person()
    table.delete_person()
    for name in ("save_snapshot", "vacuum"):
        with monkeypatch.context() as patch:
            patch.setattr(StateStore, name, fail_for_space)
            with pytest.raises(UnavailableError, match="disk is full"):
                table.purge()
        assert table.keys() == sorted(table.others)
    assert table.purge().is_complete
    assert table.remnants() == []


def fail_for_space(*_: object) -> None:
    raise UnavailableError("disk is full")


def test_the_key_file_of_a_delete_is_gone(table: PurgedTable) -> None:
    table.add_person()
    names = [PERSON, f"{PERSON}-a", f"{PERSON}-b"]
    path = new_key_path(table.ports.table("rows").ref.id, table.clock())
    with table.state.reading() as state:
        schema = keys_schema(state.schema)
    writer = DataFileWriter(table.ports.storage.root, path, schema, FileSettings())
    writer.write([pa.record_batch({"key": names}, schema=arrow_schema(schema))])
    file = writer.finish()
    region = Region((Range(PERSON, f"{PERSON}-z"),))
    key_file = KeyFile(path, file.rows, file.bytes, region, file.sidecars)
    table.state.commit_or_raise(DeleteRows((), key_file, table.clock(), "request"))
    report = table.table.purge(ranges=[(PERSON, f"{PERSON}-z")])
    assert report.is_complete
    assert path in gone(report)
    assert table.remnants() == []
    assert table.keys() == sorted(table.others)


def test_the_message_of_a_delete_is_gone_from_the_queue(table: PurgedTable) -> None:
    table.add_person()
    with table.state.reading() as state:
        region = key_region(state.schema, [PERSON])
    submit_delete(table.ports, "rows", [region])
    assert any("instance.db" in name for name in table.remnants())
    run_all(table.ports)
    table.delete_person()
    assert table.purge().is_complete
    assert table.remnants() == []


def test_split_points_of_a_deleted_region_remain(tmp_path: Path) -> None:
    table = PurgedTable(tmp_path / "instance", split_points=(PERSON,))
    table.add_person()
    table.delete_person()
    report = table.purge()
    remaining = [o.object for o in report.objects if o.state is ObjectState.REMAINS]
    assert "1 partition boundary" in remaining
    assert report.is_complete
    assert len(table.remnants()) == 3  # the state and two snapshots
    table.instance.close()


def test_the_report_is_rows_of_json(table: PurgedTable) -> None:
    table.add_person()
    table.delete_person()
    rows = list(json_rows(describe_purge(table.purge())))
    assert {tuple(row) for row in rows} == {
        ("object", "state", "number", "bytes", "reason", "until")
    }
    assert {row["state"] for row in rows} == {"gone", "remains"}


def run_all(instance: Instance) -> None:
    worker = Worker(instance, "task", threading.Event())
    while worker.run_one():
        pass


def test_published_versions_with_purged_rows_are_removed(tmp_path: Path) -> None:
    table = PurgedTable(tmp_path / "instance")
    elsewhere = tmp_path / "elsewhere"
    table.add_person()
    for to in (None, elsewhere):
        table.instance.publish_iceberg("rows", to)
    table.delete_person()
    for to in (None, elsewhere):
        assert table.instance.publish_iceberg("rows", to).delete_files == 1
    written = [*elsewhere.rglob("*.avro")]
    assert written
    report = table.purge()
    assert kept(report) == []
    assert sum(f"{elsewhere}: " in path for path in gone(report)) == 1
    assert [path for path in written if path.exists()] == []
    assert table.remnants() == []
    # Manifests are compressed.
    for to in (None, elsewhere):
        again = table.instance.publish_iceberg("rows", to)
        assert (again.is_new, again.snapshots, again.delete_files) == (False, 1, 0)
        assert again.rows == len(table.others)
    assert table.purge().is_complete


def test_a_version_that_is_published_again_is_held(tmp_path: Path) -> None:
    table = PurgedTable(tmp_path / "instance")
    table.add_person()
    table.instance.publish_iceberg("rows")
    table.delete_person()
    assert table.purge().is_complete
    assert [each.owner for each in table.state.holds.unexpired()] == ["iceberg"]
    # The files of the version outlive the compaction that replaces them.
    files = [*(tmp_path / "instance").rglob("*.parquet")]
    table.ingest(["y"], ["other"])
    compact_table(table.ports, "rows", full=True)
    run_all(table.ports)
    table.clock.pass_minutes(1)
    run_garbage_collection(table.ports, table.ports.tables.index.find("rows"))
    assert [path for path in files if not path.exists()] == []


def test_a_table_that_cannot_be_published_again_is_unpublished(tmp_path: Path) -> None:
    table = PurgedTable(tmp_path / "instance")
    table.add_person()
    table.ingest(["z"], ["in a file that nothing rewrites"])
    published = table.instance.publish_iceberg("rows")
    table.delete_person()
    table.table.add_field("n", "LongType", default=7)
    report = table.purge()
    (removed,) = (each for each in report.objects if "published versions" in each.object)
    assert "nothing is published any more: table 'rows' has files without" in str(removed.reason)
    assert not Path(published.metadata_url.removeprefix("file://")).exists()
