"""Commits that processes hand to the process which holds the lock.

Stores with databases of their own take turns at the lock as processes do.
"""

import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import (
    AbstractContextManager,
    ExitStack,
    closing,
    contextmanager,
    nullcontext,
    suppress,
)
from pathlib import Path
from typing import Any

import pytest

from sleeper.errors import DataError, UnavailableError
from sleeper.partitions.partition import PartitionId
from sleeper.statestore import commit_queue, group_commit, write_lock
from sleeper.statestore.commit_queue import CommitQueue, Returned, Submission
from sleeper.statestore.database import Database
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.transaction import Outcome, Status, Transaction
from sleeper.statestore.write_lock import WriteLock
from tests.clock import FakeClock
from tests.tables.memory_holds import MemoryHolds
from tests.tables.state_table import ROOT, StateTable, data_file, read_tables

SENDERS = 3
APPLIED, REFUSED = Status.APPLIED, Status.REFUSED


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2 * SENDERS) as executor:
        yield executor


@pytest.fixture
def observer(tmp_path: Path, table: StateTable) -> Iterator[CommitQueue]:
    """Reads the pipe as a leader does, and so takes submissions away."""
    queue = CommitQueue(tmp_path / "state.db.lock")
    queue._open_pipe(creates=True)
    yield queue
    queue.close()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Senders:
    """Stores of other processes, which find the lock taken and send their transactions."""

    def __init__(
        self, table: StateTable, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._table = table
        self._threads = threads
        self._sent = 0
        send = CommitQueue.send

        def counted_send(queue: CommitQueue, submission_id: str, requests: Any) -> bool:
            is_sent = send(queue, submission_id, requests)
            self._sent += 1
            return is_sent

        monkeypatch.setattr(CommitQueue, "send", counted_send)

    def commit(self, *transactions: Transaction, together: bool = False) -> Future[list[Outcome]]:
        """Starts the commit, and returns when its submission is sent or cannot be sent."""
        store, before = self._table.another_store(), self._sent
        action = store.commit_together if together else store.commit
        started = self._threads.submit(action, *transactions)
        wait_until(lambda: self._sent > before)
        return started


@pytest.fixture
def senders(
    table: StateTable, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> Senders:
    monkeypatch.setattr(group_commit, "_ANSWER_SECONDS", 0.002)
    # On a busy machine a leader would stop before it takes a submission, which nobody else takes.
    monkeypatch.setattr(group_commit, "_LEADING_SECONDS_MAX", 30)
    return Senders(table, threads, monkeypatch)


@contextmanager
def leading(store: StateStore) -> Iterator[None]:
    """Holds the lock. A commit of the store in the block commits what was sent."""
    with store._database.locked():
        yield


def check_numbers(table: StateTable, count: int) -> None:
    """Checks that the first transaction and `count` others are applied, each once, in order."""
    entries = table.log.read(0, limit=count + 1)
    starts = [entry.first_number for entry in entries]
    assert starts == [1, *(entry.last_number + 1 for entry in entries[:-1])]
    assert entries[-1].last_number == count + 1
    assert len(table.files()) == count


def test_the_leader_commits_for_those_that_wait_in_one_entry(
    table: StateTable, senders: Senders
) -> None:
    with leading(table.store):
        sent = [senders.commit(table.ingest_job(f"sent-{n}")) for n in range(SENDERS)]
        own = table.ingest("own")
        results = [each.result(30) for each in sent]
    assert results == [[Outcome(APPLIED, 2 + n)] for n in range(SENDERS)]
    assert own == Outcome(APPLIED, 2 + SENDERS)
    assert table.log.appended[-1].first_number == 2
    check_numbers(table, SENDERS + 1)


def test_submissions_that_arrive_during_a_commit_are_committed_before_the_lock_is_free(
    table: StateTable, senders: Senders
) -> None:
    sent: list[Future[list[Outcome]]] = []
    table.log.before_next_append = lambda: sent.append(senders.commit(table.ingest_job("sent")))
    with leading(table.store):
        assert table.ingest("own").number == 2
        assert sent[0].result(30) == [Outcome(APPLIED, 3)]
    check_numbers(table, 2)


def test_each_sender_gets_the_outcome_of_its_own_validation(
    table: StateTable, senders: Senders
) -> None:
    twice = table.ingest_job("a", job_id="job")
    with leading(table.store):
        valid = senders.commit(twice)
        other = senders.commit(table.ingest_job("b", job_id="job"), table.ingest_job("c"))
        both = senders.commit(table.ingest_job("d"), table.ingest_job("a"), together=True)
        same = senders.commit(twice)
        table.ingest("own")
        assert valid.result(30) == [Outcome(APPLIED, 2)]
        refused, applied = other.result(30)
        assert refused.status is REFUSED
        assert "other content" in refused.reason
        assert applied == Outcome(APPLIED, 3)
        assert [each.status for each in both.result(30)] == [REFUSED, REFUSED]
        assert same.result(30)[0].status is Status.ALREADY_DONE
    assert {file.path for file in table.files()} == {"a", "c", "own"}


def test_a_request_that_the_leader_cannot_read_is_committed_by_its_sender(
    table: StateTable, senders: Senders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(line: str) -> None:
        raise DataError(f"{line} is from a newer version")

    monkeypatch.setattr(group_commit, "decode_line", fail)
    with leading(table.store):
        sent = senders.commit(table.ingest_job("sent"))
        table.ingest("own")
    assert sent.result(30) == [Outcome(APPLIED, 3)]
    check_numbers(table, 2)


def test_an_error_of_the_leader_is_no_error_of_a_sender(
    table: StateTable, senders: Senders
) -> None:
    def fail() -> None:
        raise UnavailableError("the disk is full")

    with leading(table.store):
        sent = senders.commit(table.ingest_job("sent"))
        table.log.before_next_append = fail
        append, table.log.inner.append = table.log.inner.append, lambda entry: fail()  # type: ignore[method-assign]
        with pytest.raises(UnavailableError, match="the disk is full"):
            table.ingest("own")
        table.log.inner.append = append  # type: ignore[method-assign]
    assert sent.result(30) == [Outcome(APPLIED, 2)]
    check_numbers(table, 1)


def test_an_error_of_one_request_is_raised_in_its_sender(
    table: StateTable, senders: Senders, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = table.ingest_job("bad"), table.ingest_job("good")
    apply = type(bad).apply

    def apply_or_fail(transaction: Any, fold: Any) -> None:
        if transaction.id == bad.id:
            raise ArithmeticError("cannot be applied")
        apply(transaction, fold)

    monkeypatch.setattr(type(bad), "apply", apply_or_fail)
    with leading(table.store):
        failing, applied = senders.commit(bad), senders.commit(good)
        table.ingest("own")
        assert applied.result(30)[0].status is APPLIED
    with pytest.raises(ArithmeticError, match="cannot be applied"):
        failing.result(30)
    check_numbers(table, 2)


def test_a_large_request_is_not_sent(table: StateTable, senders: Senders) -> None:
    large = table.ingest_job(*(f"{'x' * 100}-{n}" for n in range(50)))
    with leading(table.store):
        sent = senders.commit(large)
        table.ingest("own")
        assert not sent.done()
    assert sent.result(30) == [Outcome(APPLIED, 3)]


def test_a_submission_that_a_dead_leader_took_is_sent_again(
    table: StateTable,
    senders: Senders,
    observer: CommitQueue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_commit, "_SUBMISSION_SECONDS", 0.05)
    with leading(table.store):
        sent = senders.commit(table.ingest_job("sent"))
        assert len(observer.take()) == 1
        wait_until(lambda: senders._sent > 1)
        table.ingest("own")
        assert sent.result(30) == [Outcome(APPLIED, 2)]
    check_numbers(table, 2)


def test_an_answer_to_a_repeated_submission_counts(
    table: StateTable,
    senders: Senders,
    observer: CommitQueue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_commit, "_SUBMISSION_SECONDS", 0.05)
    with leading(table.store):
        sent = senders.commit(table.ingest_job("sent"))
        (submission,) = observer.take()
        wait_until(lambda: senders._sent > 1)
        observer.answer(submission, [[Outcome(APPLIED, 7)]])
        assert sent.result(30) == [Outcome(APPLIED, 7)]


def test_a_refusal_of_a_repeated_submission_is_found_again_under_the_lock(
    table: StateTable,
    senders: Senders,
    observer: CommitQueue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A later copy in the pipe could be applied, although the first was refused."""
    monkeypatch.setattr(group_commit, "_SUBMISSION_SECONDS", 0.05)
    with leading(table.store):
        sent = senders.commit(table.ingest_job("sent"))
        submission, *_ = observer.take()  # on a slow machine it has been repeated already
        wait_until(lambda: senders._sent > 1)
        observer.answer(submission, [[Outcome(REFUSED, None, "because")]])
    assert sent.result(30) == [Outcome(APPLIED, 2)]
    check_numbers(table, 1)


def test_an_answer_that_came_before_the_lock_was_free_counts(
    table: StateTable,
    senders: Senders,
    observer: CommitQueue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receive = CommitQueue.receive

    def receive_late(queue: CommitQueue, submission_id: str, seconds: float) -> Any:
        return None if seconds else receive(queue, submission_id, 0)

    monkeypatch.setattr(CommitQueue, "receive", receive_late)
    with leading(table.store):
        sent = senders.commit(table.ingest_job("sent"))
        (submission,) = observer.take()
        observer.answer(submission, [[Outcome(APPLIED, 7)]])
    assert sent.result(30) == [Outcome(APPLIED, 7)]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_answers_of_other_users_are_ignored(observer: CommitQueue) -> None:
    observer.send("submission", [])
    answer = ["submission", [[[APPLIED.value, 7, ""]]]]
    program = (
        "import os, socket, sys; os.setuid(65534);"
        "out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM);"
        "[out.sendto(each.encode(), chr(0) + sys.argv[1]) for each in sys.argv[2:]]"
    )
    words = [sys.executable, "-c", program, observer._address, json.dumps(answer), "[" * 100_000]
    subprocess.run(words, check=True)
    assert observer.receive("submission", 0) is None
    observer.answer(Submission(observer._address, "submission", 0, ()), [[Outcome(APPLIED, 7)]])
    assert observer.receive("submission", 0) == [[Outcome(APPLIED, 7)]]


def test_a_sender_commits_itself_when_the_leader_is_gone(
    table: StateTable, senders: Senders, observer: CommitQueue
) -> None:
    with leading(table.store):
        sent = senders.commit(table.ingest_job("sent"))
        assert len(observer.take()) == 1
    assert sent.result(30) == [Outcome(APPLIED, 2)]


def test_a_commit_that_was_not_answered_is_already_done(
    table: StateTable, senders: Senders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CommitQueue, "answer", lambda *_: None)
    with leading(table.store):
        sent = senders.commit(table.ingest_job("sent"))
        table.ingest("own")
    (outcome,) = sent.result(30)
    assert (outcome.status, outcome.number) == (Status.ALREADY_DONE, 2)
    check_numbers(table, 2)


def test_a_returned_submission_is_committed_by_its_sender(
    table: StateTable, senders: Senders, observer: CommitQueue
) -> None:
    with leading(table.store):
        sent = senders.commit(table.ingest_job("sent"))
        (submission,) = observer.take()
        observer.answer(submission, Returned.AGAIN)
        wait_until(lambda: senders._sent > 1)
    assert sent.result(30) == [Outcome(APPLIED, 2)]


def test_a_sender_whose_submissions_nobody_reads_waits_for_the_lock(
    table: StateTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def find_taken(_: Database) -> Iterator[bool]:
        """Processes of another user take the lock again before this one looks."""
        yield False

    monkeypatch.setattr(group_commit, "_SUBMISSION_SECONDS", 0.01)
    monkeypatch.setattr(Database, "try_locking", find_taken)
    assert table.ingest("alone") == Outcome(APPLIED, 2)
    check_numbers(table, 1)


def test_an_answer_that_came_during_the_wait_for_the_lock_counts(
    table: StateTable, senders: Senders, observer: CommitQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "_SUBMISSION_SECONDS", 0.01)
    with leading(table.store):
        sent = senders.commit(table.ingest_job("sent"))
        wait_until(lambda: any(each.name == "write-lock" for each in threading.enumerate()))
        (submission, *_) = observer.take()
        observer.answer(submission, [[Outcome(APPLIED, 7)]])
    assert sent.result(30) == [Outcome(APPLIED, 7)]
    check_numbers(table, 0)


def test_a_stopped_leader_does_not_block_a_sender_for_ever(
    table: StateTable, senders: Senders, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (write_lock, group_commit, commit_queue):
        monkeypatch.setattr(module, "LOCK_SECONDS_MAX", 0.1)
    with leading(table.store):
        small = senders.commit(table.ingest_job("small"))
        large = senders.commit(table.ingest_job(*(f"{'x' * 100}-{n}" for n in range(50))))
        for sent in (small, large):
            with pytest.raises(UnavailableError, match=r"locked by another process"):
                sent.result(30)
        # The submission is overdue, so that its caller may repeat it or give up.
        assert table.ingest("own") == Outcome(APPLIED, 2)
    assert table.ingest("last") == Outcome(APPLIED, 3)
    check_numbers(table, 2)


def test_a_wait_in_vain_leaves_the_lock_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_lock, "LOCK_SECONDS_MAX", 0.05)
    first, second, third = (WriteLock(tmp_path / "lock") for _ in range(3))
    first.acquire()
    with pytest.raises(UnavailableError, match="locked by another process for more than"):
        second.acquire()
    first.release()
    wait_until(third.try_acquire)
    third.release()
    second.acquire()
    assert not first.try_acquire()
    for each in (first, second, third):
        each.close()


def test_an_interrupted_wait_leaves_the_lock_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (WriteLock(tmp_path / "lock") for _ in range(3))
    first.acquire()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "join", interrupt)
        with pytest.raises(KeyboardInterrupt):
            second.acquire()
    first.release()
    wait_until(lambda: all(each.name != "write-lock" for each in threading.enumerate()))
    assert third.try_acquire()
    for each in (first, second, third):
        each.close()


@contextmanager
def many_open_files() -> Iterator[None]:
    """The next descriptors are 1024 or more, which `select` refuses."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[0] < 4096:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, before[1]))
    try:
        with ExitStack() as opened:
            while opened.enter_context(open(os.devnull)).fileno() < 1024:
                pass
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_leader_with_many_open_files_waits_for_submissions(
    table: StateTable, senders: Senders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with many_open_files(), leading(table.store):
        sent = senders.commit(table.ingest_job("sent"))
        assert table.ingest("own") == Outcome(APPLIED, 3)
        assert sent.result(30) == [Outcome(APPLIED, 2)]
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        queues = [CommitQueue(tmp_path / "state.db.lock") for _ in range(2)]
        with closing(queues[0]), closing(queues[1]):
            assert queues[0].send("first", [])
            queues[1].wait(0)
            assert len(queues[1].take()) == 1
            timer = threading.Timer(0.05, queues[0].send, ("second", []))
            timer.start()
            queues[1].wait(30_000)
            assert len(queues[1].take()) == 1
            timer.join()


def test_a_wait_ends_when_the_lock_is_free(tmp_path: Path) -> None:
    first, second = (WriteLock(tmp_path / "lock") for _ in range(2))
    first.acquire()
    timer = threading.Timer(0.05, first.release)
    timer.start()
    second.acquire()
    assert not first.try_acquire()
    timer.join()
    second.release()
    assert first.try_acquire()
    for each in (first, second):
        each.close()


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o500])
def test_commits_do_not_need_a_pipe(
    table: StateTable,
    threads: ThreadPoolExecutor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: int,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "mkfifo", fail_as_without_permission)
    make_pipes_folder(tmp_path).chmod(mode)
    stores = [table.another_store() for _ in range(SENDERS)]
    sent = [threads.submit(s.commit, table.ingest_job(f"f{n}")) for n, s in enumerate(stores)]
    numbers = [each.result(30)[0].number for each in sent]
    assert sorted(n for n in numbers if n is not None) == list(range(2, 2 + SENDERS))
    check_numbers(table, SENDERS)


def fail_as_without_permission(*_: object) -> None:
    raise PermissionError


def test_a_folder_that_others_may_write_has_no_pipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: StateTable
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = make_pipes_folder(tmp_path)
    folder.chmod(0o777)
    assert not CommitQueue(tmp_path / "state.db.lock").send("submission", [(False, ["{}"])])
    assert list(folder.iterdir()) == []


def set_folder(table: StateTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the folder of the pipes of new stores."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    table.store = table.another_store()
    return make_pipes_folder(tmp_path)


def make_pipes_folder(temporary: Path) -> Path:
    """Creates the folder of the pipes in a temporary folder."""
    root = temporary / f"sleeper-{os.getuid()}"
    for folder in (root, root / "commits"):
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@pytest.mark.parametrize("open_files", [nullcontext, many_open_files])
def test_a_pipe_exists_only_while_it_is_in_use(
    table: StateTable,
    senders: Senders,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    open_files: Callable[[], AbstractContextManager[None]],
) -> None:
    # On a busy machine a repeated submission would stay in the pipe, which is then kept.
    monkeypatch.setattr(group_commit, "_SUBMISSION_SECONDS", 60)
    with open_files():
        folder = set_folder(table, tmp_path, monkeypatch)
        table.ingest("alone")
        assert not list(folder.glob("*"))
        with leading(table.store):
            sent = senders.commit(table.ingest_job("sent"))
            (pipe,) = folder.iterdir()
            assert pipe.is_fifo()
            assert pipe.stat().st_mode & 0o077 == 0
            table.ingest("own")
            assert sent.result(30) == [Outcome(APPLIED, 3)]
        table.store.close()
        assert not list(folder.glob("*"))


def test_a_removed_pipe_is_replaced(
    table: StateTable, senders: Senders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = set_folder(table, tmp_path, monkeypatch)
    for number in (2, 4):
        with leading(table.store):
            sent = senders.commit(table.ingest_job(f"sent-{number}"))
            table.ingest(f"own-{number}")
            assert sent.result(30) == [Outcome(APPLIED, number)]
        for pipe in folder.iterdir():
            pipe.unlink()


@pytest.mark.parametrize(
    "message", [b"\n", b"{}\n", b"null\n", b"[1,2]\n", b"\xff\n", b'["a","b",1e300,[[1]]]\n', b"["]
)
def test_messages_that_are_no_submissions_are_skipped(
    table: StateTable, observer: CommitQueue, message: bytes
) -> None:
    os.write(observer._open_pipe(), message)
    assert table.ingest("own") == Outcome(APPLIED, 2)
    check_numbers(table, 1)


def test_a_full_pipe_does_not_stop_commits(
    table: StateTable, senders: Senders, observer: CommitQueue
) -> None:
    with leading(table.store):
        with suppress(BlockingIOError):
            while True:
                os.write(observer._open_pipe(), b"x" * 4095 + b"\n")
        sent = senders.commit(table.ingest_job("sent"))
        table.ingest("own")
    assert sent.result(30) == [Outcome(APPLIED, 3)]


def test_a_commit_of_senders_is_synchronised_once_before_they_are_answered(
    table: StateTable, senders: Senders, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    answer = CommitQueue.answer

    def recorded_answer(*arguments: Any) -> None:
        steps.append("answer")
        answer(*arguments)

    monkeypatch.setattr(CommitQueue, "answer", recorded_answer)
    connection = table.store._database._open_writer()
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    connection.set_trace_callback(lambda sql: steps.append(sql) if sql == "COMMIT" else None)
    with leading(table.store):
        sent = [senders.commit(table.ingest_job(f"sent-{n}")) for n in range(SENDERS)]
        table.ingest("own")
        assert all(each.result(30)[0].status is APPLIED for each in sent)
    assert steps == ["COMMIT", *["answer"] * SENDERS]


def test_submissions_that_arrive_at_the_end_are_returned_at_once(
    table: StateTable, senders: Senders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "_ANSWER_SECONDS", 30)
    sent: list[Future[list[Outcome]]] = []
    received = threading.Event()
    lead, receive = group_commit._LeaderOrSender._lead, CommitQueue.receive

    def lead_until_a_submission(*arguments: Any) -> None:
        lead(*arguments)
        if not sent:
            sent.append(Future())
            sent[0] = senders.commit(table.ingest_job("sent"))
            received.wait(30)

    def recorded_receive(*arguments: Any) -> Any:
        received.set()
        return receive(*arguments)

    monkeypatch.setattr(group_commit._LeaderOrSender, "_lead", lead_until_a_submission)
    monkeypatch.setattr(CommitQueue, "receive", recorded_receive)
    assert table.ingest("own") == Outcome(APPLIED, 2)
    assert sent[0].result(10) == [Outcome(APPLIED, 3)]


def test_a_partition_of_a_refused_split_is_unknown_to_the_rest_of_the_entry(
    table: StateTable, senders: Senders
) -> None:
    left = PartitionId("left")
    split = table.make_split(ROOT, 5, left, "right")
    unreferenced = AddFiles("job", table.clock.now_ms, (NewFile(data_file("a"), ((left, 9),)),))
    with leading(table.store):
        both = senders.commit(split, unreferenced, together=True)
        own = table.ingest("own", partition=left, keys=(0, 4))
        assert [each.status for each in both.result(30)] == [REFUSED, REFUSED]
    assert own.status is REFUSED
    assert "partition left, which is unknown" in own.reason


def test_a_copy_of_the_log_s_entries_equals_the_shared_state(
    table: StateTable, threads: ThreadPoolExecutor, tmp_path: Path
) -> None:
    def commit_many(worker: int) -> list[Outcome]:
        store = table.another_store()
        outcomes = []
        for n in range(30):
            # Every third job is one of another worker too, with other files.
            job = f"job-{n}" if n % 3 == 0 else f"job-{worker}-{n}"
            outcomes += store.commit(table.ingest_job(f"{worker}-{n}", job_id=job))
        store.close()
        return outcomes

    found = [o for each in threads.map(commit_many, range(2 * SENDERS)) for o in each]
    applied = sorted(o.number for o in found if o.status is APPLIED and o.number is not None)
    assert applied == list(range(2, 2 + len(applied)))
    assert len(applied) == 10 + 2 * SENDERS * 20
    check_numbers(table, len(applied))
    copy = Database(tmp_path / "copy.db")
    store = StateStore(copy, table.log, MemoryHolds(), FakeClock())
    with store.reading() as state:
        assert state.number == len(applied) + 1
    store.close()
    assert read_tables(tmp_path / "copy.db") == read_tables(tmp_path / "state.db")
    assert sqlite3.connect(tmp_path / "state.db").execute("PRAGMA integrity_check").fetchone() == (
        "ok",
    )
