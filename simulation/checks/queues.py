"""Rules of queues: what was accepted waits until it is done, and a message dies at its limit."""

from collections.abc import Iterator

from simulation.checks.look import Look
from simulation.checks.settled import is_rejected
from simulation.checks.takeovers import DEAD
from simulation.checks.violation import require
from simulation.model.journal import Answer, Ingest
from simulation.model.submitted import batch_names
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.queue import QueueName
from sleeper.jobs.status import JobState
from sleeper.local.queue import LocalQueue
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.tables import TableId

_DONE = "accepted jobs are done"
_FILES = "a file of the batcher is in a job"
_ALL = 1_000_000


def check_queues(look: Look) -> None:
    """Checks the messages of the queues, and at the end the files of the batcher."""
    # On AWS the commits of jobs wait in another queue.
    if look.instance.background is not None:
        _check_waiting(look)
        _check_dead(look.instance)
    if look.is_end:
        _check_files(look)


def describe_work(instance: Instance) -> Iterator[str]:
    """Yields the tables whose files wait for the batcher."""
    for table_id in instance.jobs.file_requests().tables():
        yield f"{_FILES}: files of table {table_id} wait"


def _check_waiting(look: Look) -> None:
    """Checks that there is a message for each accepted job that is not done."""
    counts = look.instance.jobs.queue(QueueName.INGEST).counts()
    waiting = [each.id for each in _accepted(look) if not _is_done(look, each)]
    require(
        len(waiting) <= counts.unfinished + counts.dead,
        _DONE,
        f"{len(waiting)} jobs are not done",
        messages=counts,
        jobs=waiting[:5],
    )


def _accepted(look: Look) -> list[Ingest]:
    return [
        each
        for each in look.observer.journal.ingests.values()
        if each.answer is Answer.ACCEPTED and look.model(each.table_id) is not None
    ]


def _is_done(look: Look, ingest: Ingest) -> bool:
    model = look.model(ingest.table_id)
    assert model is not None
    return any(each.transaction.id == ingest.id for each in model.log) or is_rejected(
        look.instance, ingest
    )


def _check_dead(instance: Instance) -> None:
    """Checks that dead letters were received as often as a message may be."""
    for name in instance.jobs.queues:
        queue = instance.jobs.queue(name)
        assert isinstance(queue, LocalQueue)
        for letter in instance.jobs.dead_letters(name).list():
            require(
                letter.receives == queue.settings.receives_max,
                DEAD,
                f"{letter.message_id} of queue {name.value} died at {letter.receives}",
                settings=queue.settings,
            )


def _check_files(look: Look) -> None:
    """Checks that each accepted file was committed, or is one of those of rejected jobs."""
    journal = look.observer.journal
    for table_id in sorted(set(journal.accepted_files.values())):
        model = look.model(table_id)
        if model is None or table_id in journal.deleted_tables:
            continue
        committed = {
            name
            for each in model.log
            if isinstance(each.transaction, AddFiles)
            for name in batch_names(journal, each.transaction)
        }
        missing = [
            name
            for name, owner in journal.accepted_files.items()
            if owner == table_id and name not in committed
        ]
        require(
            len(missing) <= _rejected_files(look, table_id),
            _FILES,
            f"{len(missing)} files are in no job",
            table=table_id,
            files=missing[:5],
        )


def _rejected_files(look: Look, table_id: str) -> int:
    """Returns how many files rejected jobs may have had."""
    tracker, journal = look.instance.jobs.tracker, look.observer.journal
    return sum(
        _ALL if each.inputs is None else each.inputs
        for each in tracker.recent(JobKind.INGEST, TableId(table_id), limit=_ALL)
        if each.state is JobState.REJECTED and each.job_id not in journal.ingests
    )
