"""The rules of an instance that was left alone without faults: all work is done, nothing is left.

The caller lets the instance's own processes work, and time pass, until they are idle.
"""

from itertools import islice

from simulation.checks.violation import require
from simulation.model.fold import TableModel
from simulation.model.journal import Answer, Ingest
from simulation.model.observer import Observer
from sleeper.compaction.push_down import plan_moves
from sleeper.errors import NotFoundError
from sleeper.files import owner_id
from sleeper.garbage_collection.service import run_garbage_collection
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.queue import QueueName
from sleeper.jobs.status import JobState
from sleeper.runs.descent import table_descent
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.reading.version_reader import VersionReader
from sleeper.statestore.rows import sidecars_from_column
from sleeper.tables import TableId

_QUEUES = "queues drain"
_LOCKED = "nothing stays assigned"
_SHAPE = "files reach their steady shape"
_COLLECTED = "unneeded files are collected"
_ORPHANS = "orphans are collected"
_REPEATED = (
    QueueName.COMPACTION,
    QueueName.SPLITTING,
    QueueName.COMPACTION_JOB_CREATION,
    QueueName.FIND_PARTITIONS_TO_SPLIT,
    QueueName.GARBAGE_COLLECTION,
    QueueName.ORPHAN_COLLECTION,
    QueueName.STATE_SNAPSHOTS,
    QueueName.TABLE_METRICS,
)
"""Queues of jobs that are created again, by need or by a schedule."""
_DONE = "accepted jobs are done"


def check_settled(observer: Observer, files_per_partition_max: int, are_orphans_old: bool) -> None:
    """Checks all active tables and queues. Orphans are gone if they are old enough."""
    instance = observer.instance
    check_queues(instance)
    for model in observer.refresh():
        table = instance.table(observer.names[model.id])
        if table.ref.online:
            check_shape(table, files_per_partition_max)
        check_accepted(table, model, observer)
        check_collected(table)
        if are_orphans_old:
            check_orphans(table)


def check_queues(instance: Instance) -> None:
    """Checks that no message waits or is in flight, and that none became a dead letter.

    A job that is created again may fail too often, as long as there are faults.
    """
    for name in instance.jobs.queues:
        counts = instance.jobs.queue(name).counts()
        require(not counts.unfinished, _QUEUES, f"queue {name.value} has messages", counts=counts)
        if name in _REPEATED:
            continue
        letters = list(instance.jobs.dead_letters(name).list())
        require(not letters, _QUEUES, f"queue {name.value} has dead letters", letters=letters[:3])


def check_shape(table: OpenTable, files_per_partition_max: int) -> None:
    """Checks that no job holds files, and that partitions refer to the few files they should."""
    with table.state.reading() as state:
        jobs = list(state.jobs.assigned())
        require(not jobs, _LOCKED, "compaction jobs hold files", table=table.ref, jobs=jobs)
        moves = list(islice(plan_moves(state, table_descent(table.properties())), 3))
        require(not moves, _SHAPE, "references belong further down", table=table.ref, moves=moves)
        for partition, files in state.files.partition_references():
            count = len(list(files))
            require(
                count <= files_per_partition_max,
                _SHAPE,
                f"partition {partition} has {count} files",
                table=table.ref,
            )


def check_accepted(table: OpenTable, model: TableModel, observer: Observer) -> None:
    """Checks that queued jobs were committed, or tracked as rejected."""
    committed = {each.transaction.id for each in model.log}
    for ingest in observer.journal.ingests.values():
        is_queued = ingest.table_id == model.id and ingest.answer is Answer.ACCEPTED
        if is_queued and ingest.id not in committed:
            require(
                is_rejected(table.instance, ingest),
                _DONE,
                f"job {ingest.id} was queued and is not committed",
                table=table.ref,
            )


def is_rejected(instance: Instance, ingest: Ingest) -> bool:
    """Returns whether the tracker has a rejection of the job."""
    try:
        job = instance.jobs.tracker.job(TableId(ingest.table_id), ingest.id)
    except NotFoundError:
        return False
    return job.state is JobState.REJECTED


def check_collected(table: OpenTable) -> None:
    """Checks that a collection would find nothing to delete."""
    left = run_garbage_collection(table.instance, table.ref, dry_run=True)
    require(not left.paths, _COLLECTED, "files are left", table=table.ref, paths=left.paths[:5])


def check_orphans(table: OpenTable) -> None:
    """Checks that every data file, key file and sidecar is one of the state."""
    stored = {
        each.path for each in table.instance.storage.root.list_objects(f"{table.ref.id}/data/")
    }
    with table.state.reading() as state:
        unknown = sorted(stored - _known_objects(state))
    unknown = [each for each in unknown if owner_id(each) == table.ref.id]
    require(not unknown, _ORPHANS, "objects are left", table=table.ref, objects=unknown[:5])


def _known_objects(state: TableState) -> set[str]:
    reader = state.query(VersionReader)
    rows = reader.rows("SELECT path, sidecars FROM files")
    rows += reader.rows("SELECT path, sidecars FROM key_files")
    return {path + suffix for path, text in rows for suffix in ("", *sidecars_from_column(text))}
