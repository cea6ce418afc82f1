"""The status of an instance has each kind of problem, and a healthy instance has none."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import sleeper
from sleeper.adapters.definition import Adapter, FilesSource, TableSink
from sleeper.adapters.due import schedule_adapter
from sleeper.adapters.store import AdapterStore
from sleeper.export_queue.capture import capture_exports
from sleeper.export_queue.store import NewDeadLetter, open_export_store
from sleeper.instance import Instance
from sleeper.jobs.event import JobEvent, JobKind, JobStep, TaskEvent, TaskStep
from sleeper.jobs.file_requests import FileRequest
from sleeper.jobs.queue import Failure, QueueName
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.reports.problem import ProblemState
from sleeper.reports.status import gather_status
from sleeper.stash.record_index import destination_digest
from sleeper.stash.schedules import schedule_stash
from tests.clock import DAY_MS, FakeClock
from tests.unit.export_queue.receiver import create_queue, define_queue
from tests.unit.export_queue.stored_queue import make_table_of_words, rows_of

DEAD, FAILING, OVERDUE, LAGGING = ProblemState
HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def instance(tmp_path: Path, clock: FakeClock) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance", "test")
    with closing(open_local_instance(tmp_path / "instance", clock)) as opened:
        yield opened


@pytest.fixture
def table(instance: Instance) -> sleeper.Table:
    return make_table_of_words(instance)


def problems(instance: Instance) -> list[tuple[ProblemState, str, str]]:
    return [(each.state, each.kind, each.name) for each in gather_status(instance)]


def reason(instance: Instance) -> str:
    (problem,) = gather_status(instance)
    return problem.reason


def test_a_healthy_instance_has_no_problem(
    instance: Instance, table: sleeper.Table, tmp_path: Path
) -> None:
    schedule_stash(instance, str(tmp_path / "stash"), "1d")
    create_queue(instance, "words", define_queue(table, "word", "count"))
    table.ingest(rows_of(a=1))
    capture_exports(instance, "q")
    assert gather_status(instance) == ()


def test_dead_letters_of_a_queue(instance: Instance) -> None:
    queue = instance.jobs.queue(QueueName.INGEST)
    queue.send("{}")
    for _ in range(3):
        (message,) = queue.receive()
        queue.release(message.receipt, failure=Failure("no such file"))
    assert not queue.receive()
    assert problems(instance) == [(DEAD, "queue", "ingest")]
    assert reason(instance) == "1 dead letter, the oldest: no such file"


def record(instance: Instance, table: sleeper.Table, job: str, step: JobStep, run: str) -> None:
    reasons = ("the disk is full",) if step is JobStep.FAILED else ()
    event = JobEvent(
        instance.table(table.name).ref.id,
        job,
        JobKind.INGEST,
        step,
        instance.clock(),
        run,
        task_id="task",
        reasons=reasons,
    )
    instance.jobs.tracker.record(event)


def test_jobs_of_the_last_day_that_failed(
    instance: Instance, table: sleeper.Table, clock: FakeClock
) -> None:
    for job in ("one", "two"):
        record(instance, table, job, JobStep.STARTED, "1")
        record(instance, table, job, JobStep.FAILED, "1")
        clock.pass_seconds(1)
    assert problems(instance) == [(FAILING, "ingest job", "two")]
    assert reason(instance) == "table words (and 1 more within a day): the disk is full"
    # A later run of the job succeeds.
    for step in (JobStep.STARTED, JobStep.FINISHED, JobStep.COMMITTED):
        record(instance, table, "two", step, "2")
    assert problems(instance) == [(FAILING, "ingest job", "one")]
    clock.now_ms += DAY_MS
    assert problems(instance) == []


def test_a_job_whose_process_is_dead(instance: Instance, table: sleeper.Table) -> None:
    started = TaskEvent("task", "ingest", TaskStep.STARTED, instance.clock(), process="1:1")
    instance.jobs.tasks.record(started)
    record(instance, table, "one", JobStep.STARTED, "1")
    assert problems(instance) == [(DEAD, "ingest job", "one")]


def test_files_that_wait_for_the_ingest_batcher(
    instance: Instance, table: sleeper.Table, clock: FakeClock
) -> None:
    table_id = instance.table(table.name).ref.id
    request = FileRequest(table_id, "1", "a.parquet", 1, instance.clock())
    instance.jobs.file_requests().add([request])
    clock.now_ms += 10 * 60_000
    assert problems(instance) == []
    clock.now_ms += 11 * 60_000
    assert problems(instance) == [(OVERDUE, "ingest batcher", "words")]


def test_a_table_whose_compaction_does_not_keep_up(
    instance: Instance, table: sleeper.Table
) -> None:
    table.set_properties({"sleeper.table.compaction.files.batch.size": "2"})
    for number in range(20):
        table.ingest(rows_of(a=number))
    assert problems(instance) == []
    table.ingest(rows_of(a=20))
    assert problems(instance) == [(LAGGING, "table", "words")]
    assert reason(instance).startswith("21 file references in 1 leaf: ")


def test_a_table_that_cannot_be_read(
    instance: Instance, table: sleeper.Table, tmp_path: Path
) -> None:
    folder = tmp_path / "instance" / instance.table(table.name).ref.id
    for file in folder.glob("state.db*"):
        file.write_bytes(b"not a database" * 1000)
    with closing(open_local_instance(tmp_path / "instance")) as again:
        assert problems(again) == [(FAILING, "table", "words")]


def test_a_schedule_of_a_stash_that_nothing_starts(
    instance: Instance, table: sleeper.Table, clock: FakeClock, tmp_path: Path
) -> None:
    place = str(tmp_path / "stash")
    schedule_stash(instance, place, "1d")
    clock.now_ms += DAY_MS + HOUR_MS
    assert problems(instance) == [(OVERDUE, "stash", place)]


def test_an_adapter_whose_run_failed_and_whose_schedule_is_late(
    instance: Instance, table: sleeper.Table, clock: FakeClock
) -> None:
    adapter = Adapter("a", FilesSource(("rows.csv",)), TableSink("words"))
    AdapterStore(instance.storage.root).create(adapter)
    schedule_adapter(instance, "a", "1d")
    table_id, job = instance.table(table.name).ref.id, f"{adapter.job_prefix}1"
    for step in (JobStep.STARTED, JobStep.FAILED):
        event = JobEvent(table_id, job, JobKind.ADAPTER, step, instance.clock(), "1")
        instance.jobs.tracker.record(event)
    clock.now_ms += DAY_MS + HOUR_MS
    assert problems(instance) == [(FAILING, "adapter", "a"), (OVERDUE, "adapter", "a")]


def test_export_queues_that_fail_wait_or_have_dead_exports(
    instance: Instance, table: sleeper.Table, clock: FakeClock
) -> None:
    create_queue(instance, "words", define_queue(table, "word", "count", buckets=1))
    table.ingest(rows_of(a=1))
    capture_exports(instance, "q")
    clock.now_ms += HOUR_MS
    assert problems(instance) == [(LAGGING, "export queue", "q")]
    store = open_export_store(instance)
    assert store.claim("q", 0, "me", 10)
    store.record_failure("q", 0, "me", "connection refused", False, 0)
    assert problems(instance) == [(FAILING, "export queue", "q")]
    assert reason(instance) == "1 bucket of exports: connection refused"
    (item,) = store.read("q", 0, 10**6)
    assert store.claim("q", 0, "me", 10)
    dead = NewDeadLetter(item.id, item.exports, item.content, "refused")
    store.settle("q", 0, "me", [item.id], [dead])
    assert problems(instance) == [(DEAD, "export queue", "q")]


def test_the_status_of_an_instance_that_is_opened_read_only(
    instance: Instance, table: sleeper.Table, clock: FakeClock, tmp_path: Path
) -> None:
    schedule_stash(instance, str(tmp_path / "stash"), "1d")
    clock.now_ms += DAY_MS + HOUR_MS
    folder = tmp_path / "instance"
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with closing(open_local_instance(folder, clock, read_only=True)) as reader:
        assert problems(reader) == [(OVERDUE, "stash", str(tmp_path / "stash"))]
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_damaged_definitions_do_not_hide_the_problems_of_others(
    instance: Instance, table: sleeper.Table, clock: FakeClock, tmp_path: Path
) -> None:
    folder, destinations = tmp_path / "instance", [str(tmp_path / each) for each in "ab"]
    for name in "ab":
        adapter = Adapter(name, FilesSource(("rows.csv",)), TableSink("words"))
        AdapterStore(instance.storage.root).create(adapter)
        schedule_adapter(instance, name, "1d")
        schedule_stash(instance, str(tmp_path / name), "1d")
    clock.now_ms += DAY_MS + HOUR_MS
    (folder / "adapters" / "a.json").write_text("{")
    schedule = folder / "stashes" / "schedules" / f"{destination_digest(destinations[0])}.json"
    schedule.write_text("{")
    request = folder / "stashes" / destination_digest(destinations[1]) / "2020-01-01-00-00-00"
    request.mkdir(parents=True)
    (request / "request.json").write_text("{")
    assert set(problems(instance)) == {
        (FAILING, "adapter", "a"),
        (FAILING, "stash", destination_digest(destinations[0])),
        (FAILING, "stash", destination_digest(destinations[1])),
        (OVERDUE, "adapter", "b"),
        (OVERDUE, "stash", destinations[1]),
    }


def test_an_export_queue_whose_log_nothing_reads(
    instance: Instance, table: sleeper.Table, clock: FakeClock
) -> None:
    create_queue(instance, "words", define_queue(table, "word", "count"))
    table.ingest(rows_of(a=1))
    assert problems(instance) == []
    clock.now_ms += HOUR_MS
    assert problems(instance) == [(LAGGING, "export queue", "q")]
    assert reason(instance).startswith("1 transaction not captured (expected `sleeper run`")
