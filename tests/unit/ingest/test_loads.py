"""Ingests into a snapshot table, each of which is a load that replaces all rows."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
import sleeper.ingest.gathered_rows
import sleeper.ingest.run
from sleeper.clock import Clock
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.ingest.service import ingest_paths, submit_ingest
from sleeper.ingest_batcher.service import receive_batch_message, submit_to_batcher
from sleeper.jobs.event import JobKind
from sleeper.jobs.queue import Message, QueueName
from sleeper.jobs.status import JobState
from sleeper.runs.commit import RunStart, begin_run
from sleeper.statestore.store import StateStore
from sleeper.workers.worker import Worker

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "StringType"}],
    "valueFields": [{"name": "v", "type": "LongType"}],
}


@pytest.fixture
def table(tmp_path: Path) -> Iterator[sleeper.Table]:
    with sleeper.create_instance(tmp_path / "instance") as instance:
        yield instance.create_table("t", SCHEMA, {"sleeper.table.type": "snapshot"})


def rows(*keys: str) -> pa.Table:
    return pa.table({"k": list(keys), "v": [1] * len(keys)})


def keys(table: sleeper.Table) -> list[str]:
    found: list[str] = table.query().to_arrow()["k"].to_pylist()
    return found


def write_csv(folder: Path, *keys: str) -> str:
    path = folder / f"{'-'.join(keys)}.csv"
    path.write_text("k,v\n" + "".join(f"{key},1\n" for key in keys))
    return str(path)


def make_worker(table: sleeper.Table) -> Worker:
    return Worker(table._instance, "task", threading.Event())


def test_jobs_of_a_queue_replace_each_other_in_order(table: sleeper.Table, tmp_path: Path) -> None:
    for name in ("a", "b"):
        submit_ingest(table._instance, "t", [write_csv(tmp_path, name)])
    worker = make_worker(table)
    found = []
    while worker.run_one():
        found.append(keys(table))
    assert found == [["a"], ["b"]]


def test_an_empty_source_publishes_no_rows(table: sleeper.Table) -> None:
    table.ingest(rows("a"))
    table.ingest(rows())
    assert keys(table) == []


def test_an_overtaken_load_is_rejected_and_leaves_nothing(table: sleeper.Table) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        table.ingest(rows("late"), job_id="late")
        yield from rows("early").to_batches()

    with pytest.raises(InvalidRequestError, match="load late, which began later, at") as refused:
        table.ingest(batches(), job_id="early")
    assert keys(table) == ["late"]
    jobs = {job.job_id: job for job in table._instance.jobs.tracker.recent(JobKind.INGEST)}
    assert jobs["early"].state is JobState.REJECTED
    assert jobs["early"].reasons == (str(refused.value),)


def test_the_message_of_an_overtaken_load_is_not_retried(
    table: sleeper.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin_and_overtake(state: StateStore, clock: Clock, job_id: str | None) -> RunStart:
        start = begin_run(state, clock, job_id)
        with monkeypatch.context() as patch:
            patch.setattr(sleeper.ingest.run, "begin_run", begin_run)
            table.ingest(rows("late"))
        return start

    job_id = submit_ingest(table._instance, "t", [write_csv(tmp_path, "early")])
    monkeypatch.setattr(sleeper.ingest.run, "begin_run", begin_and_overtake)
    assert make_worker(table).run_one()
    ports = table._instance
    assert ports.jobs.queue(QueueName.INGEST).counts().unfinished == 0
    assert ports.jobs.tracker.job(ports.table("t").ref.id, job_id).state is JobState.REJECTED
    assert keys(table) == ["late"]


def test_a_retried_load_has_the_place_of_its_first_run(
    table: sleeper.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise UnavailableError("the disk is full")

    path = write_csv(tmp_path, "early")
    with monkeypatch.context() as patch:
        patch.setattr(sleeper.ingest.gathered_rows, "write_sorted", fail)
        with pytest.raises(UnavailableError):
            ingest_paths(table._instance, "t", [path], "early")
    table.ingest(rows("late"), job_id="late")
    with pytest.raises(InvalidRequestError, match="load early began at transaction 2, and load"):
        ingest_paths(table._instance, "t", [path], "early")
    assert keys(table) == ["late"]


def test_the_batcher_refuses_a_snapshot_table(table: sleeper.Table, tmp_path: Path) -> None:
    instance, path = table._instance, write_csv(tmp_path, "a")
    with pytest.raises(InvalidRequestError, match="'t' is a snapshot table"):
        submit_to_batcher(instance, "t", [path])
    body = f'{{"tableName":"t","files":["{path}"]}}'
    with pytest.raises(InvalidRequestError, match="expected an ingest that names all files"):
        receive_batch_message(instance, Message("m1", body, "receipt", 1, 1_000))
    (job,) = instance.jobs.tracker.recent(JobKind.INGEST)
    assert (job.job_id, job.state) == ("m1", JobState.REJECTED)
