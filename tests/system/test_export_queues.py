"""Export queues of a local instance with real processes, which are killed and fail."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper.clock import system_clock
from sleeper.compaction.plan import compact_table
from sleeper.errors import ConflictError, NotFoundError
from sleeper.export_queue.control import peek, queue_status, redrive, resume_queue
from sleeper.export_queue.definition import ExporterSettings, ExportSource
from sleeper.export_queue.store import open_export_store
from sleeper.garbage_collection.service import collect_table, snapshot_table
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.workers.runner import run_instance
from tests.system.export_runs import COMMAND, Receiver, add_exporter, running, wait_until
from tests.unit.export_queue.receiver import create_queue, define_queue
from tests.unit.export_queue.stored_queue import make_table_of_words, rows_of

pytestmark = pytest.mark.slow


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance", "test", {"sleeper.engine.threads": "1"})
    opened = open_local_instance(tmp_path / "instance")
    add_exporter(opened, tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def table(instance: Instance) -> sleeper.Table:
    return make_table_of_words(instance)


@pytest.fixture
def make_queue(instance: Instance, table: sleeper.Table, tmp_path: Path) -> Callable[..., Receiver]:
    """Creates a queue on the table, and returns its receiver."""

    def make(
        name: str = "counts",
        source: ExportSource = ExportSource.INGEST,
        on: sleeper.Table = table,
        **more: object,
    ) -> Receiver:
        receiver = Receiver(tmp_path / f"receiver of {name}")
        exporter = ExporterSettings("python:ToFile", None, receiver.options)
        queue = define_queue(on, "word", "count", source, name, exporter=exporter, **more)
        create_queue(instance, on.name, queue)
        return receiver

    return make


def many_rows(number: int) -> pa.Table:
    words = [f"word {n:05d}" for n in range(number)]
    return pa.table({"word": words, "count": list(range(number))})


def test_what_is_committed_is_exported_once_in_a_quiet_system(
    instance: Instance, table: sleeper.Table, make_queue: Callable[..., Receiver]
) -> None:
    receiver = make_queue()
    with running(instance):
        for n in range(20):
            table.ingest(rows_of(**{f"w{n}": n}))
        wait_until(lambda: len(receiver.exports()) >= 20)
        wait_until(lambda: queue_status(instance, "counts").pending == 0)
    in_order = sorted(receiver.exports(), key=lambda export: export[2])
    assert [(key, value) for key, value, _ in in_order] == [
        (f"w{n}", {"count": n}) for n in range(20)
    ]


def test_exports_of_transactions_that_fail_are_never_exported(
    instance: Instance, table: sleeper.Table, make_queue: Callable[..., Receiver]
) -> None:
    receiver = make_queue(source=ExportSource.TRANSACTION)
    table.ingest(rows_of(a=1))
    with running(instance):
        with suppress(ZeroDivisionError), table.transaction() as abandoned:
            abandoned.export("counts", "a", 1 // 0)
        loser = table.transaction()
        loser.query(keys=[["a"]]).to_arrow()
        loser.ingest(rows_of(a=2))
        loser.export("counts", "a", 2)
        with table.transaction() as winner:
            winner.ingest(rows_of(a=3))
            winner.export("counts", "a", 3)
        with pytest.raises(ConflictError):
            loser.commit()
        with table.transaction() as last:
            last.export("counts", "b", 4)
        wait_until(lambda: len(receiver.exports()) == 2)
    assert sorted(receiver.exports()) == [
        ("a", {"count": 3}, winner.number),
        ("b", {"count": 4}, last.number),
    ]


def test_concurrent_transactions_of_a_key_are_exported_with_ordered_numbers(
    instance: Instance, table: sleeper.Table, make_queue: Callable[..., Receiver]
) -> None:
    receiver = make_queue(source=ExportSource.TRANSACTION)
    numbers: dict[int, int | None] = {}
    barrier = threading.Barrier(2)

    def commit(count: int) -> None:
        transaction = table.transaction()
        transaction.export("counts", "a", count)
        barrier.wait()
        numbers[count] = transaction.commit()

    threads = [threading.Thread(target=commit, args=(count,)) for count in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run_instance(instance, until_idle=True, workers=1)
    assert numbers[1] != numbers[2]
    expected = sorted((("a", {"count": c}, n) for c, n in numbers.items()), key=lambda e: e[2] or 0)
    assert receiver.exports() == expected


@pytest.mark.parametrize("fault", ["die before 3", "die at the end"])
def test_an_exporter_that_dies_gets_the_whole_batch_again(
    instance: Instance, table: sleeper.Table, make_queue: Callable[..., Receiver], fault: str
) -> None:
    receiver = make_queue(buckets=1)
    receiver.set(fault)
    table.ingest(rows_of(a=1, b=2, c=3, d=4, e=5))
    with running(instance):
        wait_until(lambda: not receiver.has(fault))
        wait_until(lambda: queue_status(instance, "counts").pending == 0)
    before = 3 if fault == "die before 3" else 5
    words = [key for key, _, _ in receiver.exports()]
    assert words == [*"abcde"[:before], *"abcde"]


def test_a_killed_worker_loses_nothing(
    instance: Instance, table: sleeper.Table, make_queue: Callable[..., Receiver]
) -> None:
    receiver = make_queue(buckets=7)
    with running(instance) as run:
        for n in range(12):
            table.ingest(rows_of(**{f"w{n % 5}": n, f"v{n}": n}))
            if n % 4 == 0:
                run.kill_exporter()
        wait_until(lambda: queue_status(instance, "counts").lag == 0)
        wait_until(lambda: queue_status(instance, "counts").pending == 0)
    # Of an appended row, the newest export of its key is the last one.
    newest = {f"w{n % 5}": {"count": n} for n in range(12)}
    assert receiver.newest() == newest | {f"v{n}": {"count": n} for n in range(12)}


def test_two_runs_share_the_buckets(
    instance: Instance, table: sleeper.Table, make_queue: Callable[..., Receiver]
) -> None:
    receiver = make_queue(buffer_bytes=2000)
    ingests = 0

    def ingest_until_both_export() -> bool:
        nonlocal ingests
        table.ingest(many_rows(400))
        ingests += 1
        return len({each["process"] for each in receiver.lines()}) == 2

    with running(instance), running(instance):
        wait_until(ingest_until_both_export)
        wait_until(lambda: queue_status(instance, "counts").lag == 0)
        wait_until(lambda: queue_status(instance, "counts").pending == 0)
    exports = {(key, sequence) for key, _, sequence in receiver.exports()}
    assert len(exports) == 400 * ingests


def test_nothing_that_a_queue_needs_is_collected_while_no_worker_runs(
    instance: Instance, table: sleeper.Table, make_queue: Callable[..., Receiver]
) -> None:
    receiver = make_queue()
    for n in range(15):
        table.ingest(rows_of(**{f"w{n}": n}))
    table.delete(keys=[["w3"]])
    ref = instance.table("words").ref
    late = replace(instance, clock=lambda: system_clock() + 30 * 24 * 3_600_000)
    compact_table(late, "words")
    collect_table(late, "words")
    for _ in range(2):
        snapshot_table(late, ref, always=True)
        table.ingest(rows_of(again=1))
    run_instance(instance, until_idle=True, workers=1)
    assert receiver.newest() == {f"w{n}": {"count": n} for n in range(15) if n != 3} | {
        "again": {"count": 1}
    }
    assert len(receiver.exports()) == 18


def test_a_receiver_that_comes_back_gets_everything(
    instance: Instance, table: sleeper.Table, make_queue: Callable[..., Receiver]
) -> None:
    receiver = make_queue(tries=1)
    receiver.set("away")
    with running(instance):
        table.ingest(many_rows(200))
        wait_until(lambda: queue_status(instance, "counts").lag == 0)
        wait_until(lambda: len(queue_status(instance, "counts").failing) > 50)
        status = queue_status(instance, "counts")
        assert (status.pending, status.dead, receiver.exports()) == (200, 0, [])
        assert all(each.is_unavailable for each in status.failing)
        receiver.clear("away")
        resume_queue(instance, "counts")
        wait_until(lambda: queue_status(instance, "counts").pending == 0)
    assert len(receiver.newest()) == 200


def test_an_exporter_that_hangs_does_not_stop_another_queue(
    instance: Instance, table: sleeper.Table, make_queue: Callable[..., Receiver]
) -> None:
    bad = make_queue("bad", timeout_seconds=600)
    good = make_queue("good")
    bad.set("hang")
    with running(instance):
        for n in range(10):
            table.ingest(rows_of(**{f"w{n}": n}))
            wait_until(lambda n=n: len(good.exports()) > n)  # type: ignore[misc]
        assert queue_status(instance, "bad").pending == 10
    assert bad.exports() == []


def test_an_exporter_that_hangs_is_replaced(
    instance: Instance, table: sleeper.Table, make_queue: Callable[..., Receiver]
) -> None:
    bad = make_queue("bad", timeout_seconds=1)
    bad.set("hang")
    with running(instance) as run:
        table.ingest(rows_of(w=1))
        wait_until(lambda: run.exporters() != [])
        first = run.exporters()
        wait_until(lambda: run.exporters() not in ([], first))
        failing = queue_status(instance, "bad").failing
        assert failing
        assert "bucket" in failing[0].error
        assert "the exporter did not return within 1 s" in failing[0].error
        assert failing[0].refusals == 0
        bad.clear("hang")
        wait_until(lambda: queue_status(instance, "bad").pending == 0)
    assert len(bad.newest()) == 1


def test_a_queue_is_deleted_with_exports_in_it(
    instance: Instance, table: sleeper.Table, make_queue: Callable[..., Receiver]
) -> None:
    receiver = make_queue()
    receiver.set("away")
    with running(instance):
        table.ingest(many_rows(50))
        wait_until(lambda: queue_status(instance, "counts").pending == 50)
        open_export_store(instance).remove("counts")
        other = make_queue("other")
        table.ingest(rows_of(a=1))
        wait_until(lambda: len(other.exports()) == 1)
    with pytest.raises(NotFoundError):
        queue_status(instance, "counts")
    assert receiver.exports() == []


def test_a_run_until_idle_ends_without_waiting_for_a_receiver_that_is_unavailable(
    instance: Instance, table: sleeper.Table, make_queue: Callable[..., Receiver]
) -> None:
    away, good, paused = make_queue("away"), make_queue("good"), make_queue("paused")
    away.set("away")
    open_export_store(instance).pause("paused", True)
    table.ingest(many_rows(20))
    status = run_instance(instance, until_idle=True, workers=1)
    assert len(good.exports()) == 20
    assert (away.exports(), paused.exports()) == ([], [])
    assert status.exports >= 20
    (problem,) = [each for each in status.problems if "'away'" in each]
    assert problem.startswith("20 exports pending: export queue 'away', bucket ")
    assert problem.endswith("receiver unavailable: ConnectionError: the receiver is unavailable")
    assert len(peek(instance, "away", limit=5)[0].rows) <= 5
    assert redrive(instance, "away") == 0


def test_a_run_until_idle_ends_when_queues_of_other_tables_have_exported_too(
    instance: Instance, table: sleeper.Table, make_queue: Callable[..., Receiver]
) -> None:
    # Each queue exports into the table of the queue whose name is before its own.
    for name, source, target in (("q3", "words", "second"), ("q2", "second", "first")):
        sleeper.Instance(instance).create_export_queue(
            name, source, on="ingest", keys="word", values="count", exporter=f"table:{target}"
        )
    receiver = make_queue("q1", on=sleeper.Instance(instance).table("first"), buckets=3)
    table.ingest(many_rows(50))
    run_instance(instance, until_idle=True, workers=1)
    assert len(receiver.newest()) == 50
    for name in ("q1", "q2", "q3"):
        status = queue_status(instance, name)
        assert (status.lag, status.pending, status.dead) == (0, 0, 0)


def test_a_command_ends_although_a_call_does_not_return(
    instance: Instance, table: sleeper.Table, make_queue: Callable[..., Receiver]
) -> None:
    receiver = make_queue(timeout_seconds=1)
    receiver.set("hang")
    table.ingest(rows_of(a=1))
    command = [*COMMAND, "--instance", instance.where, "export-queue", "drain", "counts"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert "1 export pending" in result.stderr
    assert result.stderr.rstrip().endswith("the exporter did not return within 1 s")


def test_an_export_with_which_every_worker_dies_stops_only_its_bucket(
    instance: Instance, table: sleeper.Table, make_queue: Callable[..., Receiver]
) -> None:
    receiver = make_queue(buckets=50, tries=2)
    receiver.set("always die with b")
    table.ingest(rows_of(a=1, b=2, c=3))
    run_instance(instance, until_idle=True, workers=1)
    status = queue_status(instance, "counts")
    assert (status.pending, status.dead) == (0, 1)
    assert set(receiver.newest()) == {"a", "c"}
    (dead,) = peek(instance, "counts", dead=True)
    assert "workers died while they exported it" in (dead.error or "")


def test_refused_exports_are_dead_letters_that_can_be_redriven(
    instance: Instance, table: sleeper.Table, make_queue: Callable[..., Receiver]
) -> None:
    receiver = make_queue(buckets=2, tries=2)
    receiver.set("refuse b")
    table.ingest(rows_of(a=1, b=2, c=3))
    run_instance(instance, until_idle=True, workers=1)
    status = queue_status(instance, "counts")
    assert (status.pending, status.dead) == (0, 1)
    assert set(receiver.newest()) == {"a", "c"}
    (dead,) = peek(instance, "counts", dead=True)
    assert dead.rows.column("word").to_pylist() == ["b"]
    assert f"bucket {dead.bucket}, sequence " in (dead.error or "")
    receiver.clear("refuse b")
    assert redrive(instance, "counts") == 1
    run_instance(instance, until_idle=True, workers=1)
    assert set(receiver.newest()) == {"a", "b", "c"}
