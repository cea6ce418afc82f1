"""Damage, full disks and concurrent commands on a real instance: reported and recovered."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.adapters.definition import Adapter, FilesSource, TableSink
from sleeper.adapters.due import schedule_adapter, send_due_runs
from sleeper.adapters.run import run_adapter
from sleeper.adapters.store import AdapterStore
from sleeper.admin.properties import set_table_properties
from sleeper.admin.tables import create_table
from sleeper.clock import system_clock
from sleeper.compaction.plan import compact_table
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.write.file import DataFileWriter
from sleeper.deletion.keys import delete_rows
from sleeper.errors import (
    ConflictError,
    DataError,
    InvalidRequestError,
    SleeperError,
    UnavailableError,
)
from sleeper.files import DataFile, new_data_path
from sleeper.garbage_collection.service import collect_table, snapshot_table
from sleeper.ingest.service import ingest_paths
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.queue import QueueName
from sleeper.jobs.status import JobState
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.local.reserve import RESERVE_FILE
from sleeper.partitions.partition import ROOT_PARTITION_ID
from sleeper.partitions.region import key_region
from sleeper.purging.service import purge_table
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.query.sql.service import open_sql
from sleeper.runs.engine import file_settings
from sleeper.schedule import make_schedule
from sleeper.splitting.service import split_table
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.workers.worker import Worker
from tests.clock import FakeClock
from tests.system.bad_days import (
    SCHEMA,
    assert_nothing_stays,
    count_rows,
    make_table,
    run_all,
    submitted,
    write,
)

LEASE_MS = 3_600_000
_SLEEPER = (sys.executable, "-c", "from sleeper.cli.main import main; main()")


def ingest(instance: Instance, folder: Path, count: int, rows: int = 50) -> None:
    for number in range(count):
        path = write(folder / f"{number}.parquet", [(f"k{i:04d}", number) for i in range(rows)])
        ingest_paths(instance, "rows", [str(path)])


def list_files(instance: Instance) -> list[str]:
    with instance.table("rows").state.reading() as state:
        return [file.path for file in state.files.all()]


def query(instance: Instance) -> int:
    with open_query(instance, "rows", Query()) as result:
        return sum(batch.num_rows for batch in result)


def damage(path: Path, damage_kind: str) -> None:
    content = path.read_bytes()
    match damage_kind:
        case "truncated":
            path.write_bytes(content[: len(content) // 2])
        case "flipped":
            place = pq.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset
            path.write_bytes(content[:place] + b"\xff" * 60 + content[place + 60 :])
        case "emptied":
            path.write_bytes(b"")
        case "gone":
            path.unlink()


@pytest.mark.parametrize("damage_kind", ["truncated", "flipped", "emptied", "gone"])
def test_a_damaged_data_file_is_named_and_its_compaction_fails_without_a_loop(
    instance: Instance, tmp_path: Path, clock: FakeClock, damage_kind: str
) -> None:
    make_table(instance)
    ingest(instance, tmp_path, 3)
    previous = list_files(instance)
    path = Path(instance.storage.root.url_of(previous[1]))
    good = path.read_bytes()
    damage(path, damage_kind)
    with pytest.raises(SleeperError) as failure:
        query(instance)
    assert isinstance(failure.value, DataError)
    assert previous[1] in str(failure.value)
    with pytest.raises(SleeperError) as failure, open_sql(instance, "SELECT k FROM rows") as result:
        list(result)
    assert not isinstance(failure.value, InvalidRequestError)
    for _ in range(3):  # created again, nothing is tried again before the lease runs out
        compact_table(instance, "rows", full=True)
        run_all(instance)
        clock.now_ms += 60_000
    (job,) = instance.jobs.tracker.recent(JobKind.COMPACTION)
    assert job.state is JobState.FAILED
    assert len(job.runs) == 1
    assert previous[1] in job.reasons[0]
    assert list_files(instance) == previous
    path.write_bytes(good)  # a person put it right
    clock.now_ms += LEASE_MS
    compact_table(instance, "rows", full=True)
    run_all(instance)
    assert len(list_files(instance)) == 1
    assert count_rows(instance) == {(f"k{i:04d}", n): 1 for i in range(50) for n in range(3)}
    assert_nothing_stays(instance)


@pytest.mark.parametrize("content", [None, b"", b"torn", b"\x00" * 300])
def test_a_leaf_is_split_although_its_sidecars_are_damaged(
    instance: Instance, tmp_path: Path, content: bytes | None
) -> None:
    make_table(instance, partition_splitting_threshold="60")
    ingest(instance, tmp_path, 3)
    for path in list_files(instance):
        sidecar = Path(instance.storage.root.url_of(path + ".sketches"))
        sidecar.unlink() if content is None else sidecar.write_bytes(content)
    (result,) = split_table(instance, "rows")
    assert result.leaves >= 2
    assert query(instance) == 150


def test_a_torn_data_file_fails_the_split_of_its_leaf_and_names_it(
    instance: Instance, tmp_path: Path
) -> None:
    make_table(instance, partition_splitting_threshold="60")
    ingest(instance, tmp_path, 3)
    path = list_files(instance)[0]
    Path(instance.storage.root.url_of(path + ".sketches")).unlink()
    damage(Path(instance.storage.root.url_of(path)), "truncated")
    with pytest.raises(DataError, match=path):
        split_table(instance, "rows")


def test_a_torn_state_snapshot_is_skipped(instance: Instance, tmp_path: Path) -> None:
    make_table(instance)
    ref = instance.table("rows").ref
    folder = Path(instance.where) / ref.id / "snapshots"
    for number in range(3):
        ingest(instance, tmp_path, 2)
        snapshot_table(instance, ref, always=True)
        newest = max(folder.iterdir())
        newest.write_bytes(newest.read_bytes()[: 100 * number])
    instance.close()
    again = open_local_instance(Path(instance.where))
    report = snapshot_table(again, ref, always=True)
    assert report is not None
    assert report.trimmed_to == 0  # there are not two whole ones
    assert snapshot_table(again, ref, always=True).trimmed_to > 0
    assert query(again) == 300
    again.close()


def test_one_of_two_concurrent_creations_of_a_table_succeeds(tmp_path: Path) -> None:
    folder = tmp_path / "instance"
    create_local_instance(folder, "test")
    messages: list[object] = []

    def make() -> None:
        instance = open_local_instance(folder)
        try:
            messages.append(create_table(instance, "rows", SCHEMA))
        except SleeperError as error:
            messages.append(error)
        instance.close()

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(item, ConflictError) for item in messages) == 3, messages
    instance = open_local_instance(folder)
    assert len(instance.tables.index.list()) == 1
    instance.close()


INGEST = """
import sys
from sleeper.opening import open_instance
from sleeper.ingest.service import ingest_paths
instance = open_instance(sys.argv[1])
for path in sys.argv[2:]:
    ingest_paths(instance, "rows", [path], path)
"""


def test_concurrent_ingests_of_the_same_jobs_commit_each_once(
    instance: Instance, tmp_path: Path
) -> None:
    make_table(instance, ("k0020",))
    paths = [str(write(tmp_path / f"{n}.parquet", [(f"k{n:04d}", n)])) for n in range(40)]
    writers = [
        subprocess.Popen([sys.executable, "-c", INGEST, instance.where, *paths[::step]])
        for step in (1, -1, 1)
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert count_rows(instance) == {(f"k{n:04d}", n): 1 for n in range(40)}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate disk of 12 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = os.geteuid() == 0 and shutil.which("mount")
    command = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)]
    if not mounted or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can only be mounted by root, where mounting is allowed")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("spill", ["beside the data", "elsewhere"])
def test_a_full_disk_is_reported_and_the_job_succeeds_once_there_is_space(
    small_disk: Path, tmp_path: Path, spill: str
) -> None:
    folder = small_disk / "instance"
    properties = {"sleeper.engine.threads": "1", "sleeper.queue.receives.max": "100"}
    if spill == "elsewhere":
        properties["sleeper.spill.directory"] = str(tmp_path / "spill")
    create_local_instance(folder, "test", properties)
    clock = FakeClock(system_clock())
    instance = open_local_instance(folder, clock)
    make_table(instance)
    small = write(tmp_path / "small.parquet", [(f"k{i:04d}", -1) for i in range(2000)])
    for number in range(3):
        assert submitted(instance, small, f"small-{number}").state is JobState.COMMITTED
    previous = count_rows(instance)
    # Noise does not compress.
    noise = [(os.urandom(20).hex(), i) for i in range(150_000)]
    large = write(tmp_path / "large.parquet", noise)
    filler = small_disk / "filler"
    filler.write_bytes(b"\0" * (shutil.disk_usage(small_disk).free - (2 << 20)))
    with pytest.raises(UnavailableError, match=r"(?i)no space|full|cannot write"):
        ingest_paths(instance, "rows", [str(large)], "large")
    assert count_rows(instance) == previous
    assert query(instance) == previous.total()
    failed = instance.jobs.tracker.job(instance.table("rows").ref.id, "large")
    assert failed.state is JobState.FAILED
    assert failed.reasons
    filler.unlink()
    assert not files_left(instance)
    write(large, noise[:20_000])
    job = submitted(instance, large, "large")
    assert job.state is JobState.COMMITTED, job.reasons
    assert count_rows(instance) == previous + type(previous)(noise[:20_000])
    assert_nothing_stays(instance)
    instance.close()


def test_an_adapter_on_a_full_disk_is_sent_and_loads_once_there_is_space(
    small_disk: Path, tmp_path: Path
) -> None:
    create_local_instance(small_disk / "instance", "test", {"sleeper.engine.threads": "1"})
    clock = FakeClock(system_clock())
    instance = open_local_instance(small_disk / "instance", clock)
    schema = '{"rowKeyFields": [{"name": "k", "type": "StringType"}]}'
    create_table(instance, "t", schema, {"sleeper.table.type": "snapshot"})
    source = tmp_path / "rows.csv"
    source.write_text("k\na\n")
    store = AdapterStore(instance.storage.root)
    schedule = make_schedule("1h", clock())
    store.create(Adapter("hourly", FilesSource((str(source),)), TableSink("t"), schedule))
    run_adapter(instance, "hourly")
    # Noise does not compress.
    source.write_text("k\n" + "".join(f"{os.urandom(30).hex()}\n" for _ in range(60_000)))
    clock.now_ms += 3_600_000

    filler = small_disk / "filler"
    filler.write_bytes(b"\0" * shutil.disk_usage(small_disk).free)
    (problem,) = send_due_runs(instance).problems
    assert "full" in problem
    with pytest.raises(UnavailableError, match="No space"):
        schedule_adapter(instance, "hourly", None)
    assert (store.get("hourly").schedule, store.last_due_ms("hourly")) == (schedule, None)
    filler.unlink()
    (job_id,) = send_due_runs(instance).sent

    filler.write_bytes(b"\0" * (shutil.disk_usage(small_disk).free - (1 << 20)))
    worker, table = Worker(instance, "task", threading.Event()), instance.table("t")
    assert worker.run_one()
    job = instance.jobs.tracker.job(table.ref.id, job_id)
    assert (job.state, "No space" in job.reasons[0]) == (JobState.FAILED, True)
    with open_query(instance, "t", Query()) as result:
        assert result.read_all().to_pylist() == [{"k": "a"}]
    assert send_due_runs(instance).sent == ()
    filler.unlink()
    clock.now_ms += 60_000
    assert worker.run_one()
    assert instance.jobs.tracker.job(table.ref.id, job_id).state is JobState.COMMITTED
    with open_query(instance, "t", Query()) as result:
        assert sum(batch.num_rows for batch in result) == 60_000
    instance.close()


def test_a_full_disk_returns_the_message_of_a_compaction(small_disk: Path, tmp_path: Path) -> None:
    folder = small_disk / "instance"
    create_local_instance(folder, "test", {"sleeper.engine.threads": "1"})
    clock = FakeClock(system_clock())
    instance = open_local_instance(folder, clock)
    make_table(instance)
    for number in range(2):
        noise = [(os.urandom(20).hex(), i) for i in range(30_000)]
        ingest_paths(instance, "rows", [str(write(tmp_path / f"{number}.parquet", noise))])
    previous = count_rows(instance)
    compact_table(instance, "rows", full=True)
    filler = small_disk / "filler"
    room = shutil.disk_usage(small_disk).free - (1 << 20)
    filler.write_bytes(b"\0" * room)
    with contextlib.suppress(UnavailableError):  # there may be no room to give it back either
        run_all(instance)
    assert instance.jobs.queue(QueueName.COMPACTION).counts().unfinished == 1
    assert count_rows(instance) == previous
    filler.unlink()
    clock.now_ms += 1_000_000
    assert not files_left(instance)
    run_all(instance)
    assert len(list_files(instance)) == 1
    assert count_rows(instance) == previous
    assert_nothing_stays(instance)
    instance.close()


def fill(disk: Path, room: int = 0) -> None:
    """Fills the disk with a file, up to the room."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * 4096):
            pass
    os.truncate(filler, filler.stat().st_size - room)
    assert shutil.disk_usage(disk).free == room


def test_reads_and_collections_work_on_a_full_disk(
    small_disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create_local_instance(small_disk / "instance", "test", {"sleeper.engine.threads": "1"})
    clock = FakeClock(system_clock())
    instance = open_local_instance(small_disk / "instance", clock)
    make_table(instance)
    for number in range(2):
        noise = [(os.urandom(20).hex(), i) for i in range(20_000)]
        ingest_paths(instance, "rows", [str(write(tmp_path / f"{number}.parquet", noise))])
    assert collect_table(instance, "rows").files == 0  # makes the reserve
    compact_table(instance, "rows", full=True)
    run_all(instance)
    clock.now_ms += 60_000
    fill(small_disk)

    with caplog.at_level("WARNING", "sleeper"):
        assert query(instance) == 40_000
        with open_sql(instance, "SELECT count(*) FROM rows") as rows:
            assert rows.read_all().column(0).to_pylist() == [40_000]
    assert len([r for r in caplog.records if "without a hold" in r.getMessage()]) == 2
    assert all("(disk full, 0 bytes free)" in r.getMessage() for r in caplog.records)

    assert collect_table(instance, "rows").files == 2
    assert shutil.disk_usage(small_disk).free > 1 << 20
    assert query(instance) == 40_000
    (small_disk / "filler").unlink()
    assert collect_table(instance, "rows").files == 0
    assert (small_disk / "instance" / RESERVE_FILE).stat().st_size == 4 << 20
    instance.close()


@pytest.mark.parametrize("room", [0, 400 * 1024], ids=["none", "little"])
def test_commands_say_in_a_line_that_the_disk_is_full(
    small_disk: Path, tmp_path: Path, room: int
) -> None:
    folder = small_disk / "instance"
    create_local_instance(folder, "test", {"sleeper.engine.threads": "1"})
    noise = write(tmp_path / "noise.parquet", [(os.urandom(20).hex(), i) for i in range(40_000)])
    with contextlib.closing(open_local_instance(folder)) as instance:
        make_table(instance)
        ingest_paths(instance, "rows", [str(noise)])
        ingest_paths(instance, "rows", [str(noise)])
    fill(small_disk, room)
    for command in (["ingest", "rows", str(noise)], ["run", "--until-idle"]):
        process = subprocess.run(
            [*_SLEEPER, "--instance", str(folder), *command],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in process.stderr
        if process.returncode:
            line = process.stderr.splitlines()[-1]
            assert re.match(
                rf"error: .*{re.escape(str(folder))}.*\(disk full, [0-9,]+ bytes free\)$", line
            )
        assert process.returncode or command[0] == "run"


def test_a_purge_on_a_full_disk_continues_once_there_is_space(
    small_disk: Path, tmp_path: Path
) -> None:
    create_local_instance(small_disk / "instance", "test", {"sleeper.engine.threads": "1"})
    clock = FakeClock(system_clock())
    instance = open_local_instance(small_disk / "instance", clock)
    make_table(instance)
    noise = [(os.urandom(20).hex(), i) for i in range(30_000)]
    ingest_paths(instance, "rows", [str(write(tmp_path / "noise.parquet", noise))])
    kept = count_rows(instance) - Counter([min(noise)])
    with instance.table("rows").state.reading() as state:
        region = key_region(state.schema, [min(noise)[0]])
    delete_rows(instance, "rows", [region])
    filler = small_disk / "filler"
    filler.write_bytes(b"\0" * (shutil.disk_usage(small_disk).free - (1 << 20)))
    with contextlib.suppress(UnavailableError):
        assert not purge_table(instance, "rows").is_complete
    assert query(instance) == kept.total()
    filler.unlink()
    # The message returns, and the torn output of the killed job is an orphan.
    clock.now_ms += 15 * 24 * LEASE_MS
    assert purge_table(instance, "rows").is_complete
    assert count_rows(instance) == kept
    instance.close()


def files_left(instance: Instance) -> list[Path]:
    data = Path(instance.where) / instance.table("rows").ref.id / "data"
    names = set(list_files(instance))
    result = [p for p in data.rglob("*.parquet") if p.is_file()]
    return [p for p in result if p.relative_to(instance.where).as_posix() not in names]


def test_a_collection_that_cannot_delete_reports_it_and_finishes_later(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(instance)
    ingest(instance, tmp_path, 2)
    old = list_files(instance)
    compact_table(instance, "rows", full=True)
    run_all(instance)

    def refuses(*_: object, **__: object) -> None:
        raise OSError(30, "read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuses)
        with pytest.raises(UnavailableError, match="read-only"):
            collect_table(instance, "rows")
    assert all(Path(instance.storage.root.url_of(path)).exists() for path in old)
    assert query(instance) == 100
    report = collect_table(instance, "rows")
    assert (report.files, report.finished) == (2, 2)
    assert not any(Path(instance.storage.root.url_of(path)).exists() for path in old)


def test_an_invalid_instance_database_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "instance"
    create_local_instance(folder, "test")
    (folder / "instance.db").write_bytes(b"this was a database" * 100)
    for beside in folder.glob("instance.db-*"):
        beside.unlink()
    with pytest.raises(DataError, match=r"instance\.db"):
        open_local_instance(folder)


def test_a_torn_state_database_is_named_and_the_other_tables_go_on(
    instance: Instance, tmp_path: Path
) -> None:
    make_table(instance)
    create_table(instance, "other", SCHEMA)
    torn = instance.table("rows").ref
    state = Path(instance.where) / torn.id / "state.db"
    instance.close()
    for beside in state.parent.glob("state.db-*"):
        beside.unlink()
    state.write_bytes(b"this was a database" * 100)
    again = open_local_instance(Path(instance.where))
    path = write(tmp_path / "a.parquet", [("a", 1)])
    with pytest.raises(DataError, match=r"state\.db"):
        ingest_paths(again, "rows", [str(path)], "j")
    assert again.jobs.tracker.job(torn.id, "j").state is JobState.FAILED
    assert ingest_paths(again, "other", [str(path)]).rows == 1
    again.close()


COMPACT = """
import sys, threading
from sleeper.opening import open_instance
from sleeper.workers.worker import Worker
instance = open_instance(sys.argv[1])
assert Worker(instance, "task", threading.Event()).run_one()
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):
        print(int(line.split()[1]) // 1024)
"""


def test_a_leaf_of_a_thousand_files_is_compacted_in_512_mib(tmp_path: Path) -> None:
    """Rule 6. Files of 2,000 rows; a file alone takes some 2 MiB while it is open."""
    folder = tmp_path / "instance"
    create_local_instance(
        folder,
        "test",
        {"sleeper.merge.memory.bytes": str(200 << 20), "sleeper.engine.threads": "1"},
    )
    instance = open_local_instance(folder)
    make_table(instance)
    add_many_files(instance, 1000)
    compact_table(instance, "rows", full=True)
    command = [sys.executable, "-c", COMPACT, str(folder)]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    print(f"resident at most: {process.stdout.strip()} MiB")
    assert len(list_files(instance)) == 1
    assert query(instance) == 1000 * 2000
    assert int(process.stdout) < 512
    instance.close()


def add_many_files(instance: Instance, count: int) -> None:
    """Adds files of 2,000 rows whose keys interleave: copies of ten files, in one transaction."""
    table, root = instance.table("rows"), instance.storage.root
    with table.state.reading() as state:
        kinds, schema = arrow_schema(state.schema), state.schema
    settings, now_ms = file_settings(table.properties()), instance.clock()
    files: list[DataFile] = []
    for number in range(count):
        path = new_data_path(table.ref.id, ROOT_PARTITION_ID, now_ms)
        if number < 10:
            rows = sorted((f"k{(i * 10 + number) * 7919 % 10**7:08d}", i) for i in range(2000))
            writer = DataFileWriter(root, path, schema, settings)
            columns = zip(zip(*rows, strict=True), kinds, strict=True)
            arrays = [pa.array(values, field.type) for values, field in columns]
            writer.write([pa.record_batch(arrays, schema=kinds)])
            files.append(writer.finish())
        else:
            first = files[number % 10]
            for suffix in ("", *first.sidecars):
                shutil.copyfile(root.url_of(first.path + suffix), root.url_of(path + suffix))
            files.append(replace(first, path=path))
    added = (NewFile(file, ((ROOT_PARTITION_ID, file.rows),)) for file in files)
    table.state.commit(AddFiles("many", now_ms, tuple(added)))


def test_a_change_of_properties_is_all_or_nothing(instance: Instance) -> None:
    make_table(instance)
    previous = instance.table("rows").properties()
    with pytest.raises(SleeperError):
        set_table_properties(
            instance,
            "rows",
            {"sleeper.table.gc.delay.minutes": "5", "sleeper.table.gc.delay.minutes.x": "1"},
        )
    assert instance.table("rows").properties() == previous


STALLED = """
import sys, time
import sleeper.ingest.service as service
from sleeper.opening import open_instance
def stalls(*_):
    print("there", flush=True)
    time.sleep(60)
service.ingest_files = stalls
service.ingest_paths(open_instance(sys.argv[1]), "rows", [sys.argv[2]], "j")
"""


def test_an_ingest_whose_process_was_killed_is_tracked_as_failed(
    instance: Instance, tmp_path: Path
) -> None:
    make_table(instance)
    path = write(tmp_path / "a.parquet", [("a", 1)])
    command = [sys.executable, "-c", STALLED, instance.where, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        process.kill()
    instance.background.recover()
    job = instance.jobs.tracker.job(instance.table("rows").ref.id, "j")
    assert job.state is JobState.FAILED
    assert "died" in job.reasons[0]
