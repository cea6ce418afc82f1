"""A process that commits for others and fails at a stage, for tests. Arguments: DATABASE STAGE.

It prints `leading` when it holds the lock, and waits for submissions of two senders.
"""

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sleeper.errors import UnavailableError
from sleeper.local.state_store import SqliteTransactionLog, open_state_store
from sleeper.statestore.commit_queue import CommitQueue, Submission
from sleeper.statestore.entry_commit import EntryCommitter
from sleeper.statestore.group_commit import _LeaderOrSender
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from tests.tables.state_table import ROOT, data_file

SENDERS = 2


def signal_after(owner: Any, name: str, sent: signal.Signals = signal.SIGKILL) -> None:
    """Sends this process the signal after a call."""
    original: Callable[..., Any] = getattr(owner, name)

    def call(*arguments: Any) -> Any:
        result = original(*arguments)
        os.kill(os.getpid(), sent)
        return result

    setattr(owner, name, call)


def limit_file_sizes() -> None:
    """Makes the disk full for this process."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))


STAGES: dict[str, Callable[[], None]] = {
    "taken": lambda: signal_after(CommitQueue, "take"),
    "appended": lambda: signal_after(SqliteTransactionLog, "append"),
    "committed": lambda: signal_after(EntryCommitter, "commit"),
    "answered": lambda: signal_after(CommitQueue, "answer"),
    "led": lambda: signal_after(_LeaderOrSender, "_lead"),
    "stopped": lambda: signal_after(CommitQueue, "take", signal.SIGSTOP),
    "full": limit_file_sizes,
}


def wait_for_senders() -> None:
    """Makes the first look into the pipe wait for all senders."""
    take = CommitQueue.take
    senders: set[str] = set()

    def take_all(queue: CommitQueue) -> list[Submission]:
        if not senders:
            print("leading", flush=True)
        submissions = take(queue)
        senders.update(submission.sender for submission in submissions)
        while len(senders) < SENDERS:
            time.sleep(0.001)
            submissions += (more := take(queue))
            senders.update(submission.sender for submission in more)
        return submissions

    CommitQueue.take = take_all  # type: ignore[method-assign]


def main(database: str, stage: str) -> None:
    store = open_state_store(Path(database))
    wait_for_senders()
    STAGES[stage]()
    new = NewFile(data_file("leader"), ((ROOT, 10),))
    try:
        store.commit(AddFiles("leader", time.time_ns() // 1_000_000, (new,)))
    except UnavailableError:
        print("unavailable")


if __name__ == "__main__":
    main(*sys.argv[1:])
