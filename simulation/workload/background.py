"""Operations of the instance itself: workers, compaction, splitting, collection, snapshots."""

import threading

from simulation.workload.client import Client
from simulation.workload.registry import always, has_table, operation
from sleeper.compaction.plan import create_table_jobs
from sleeper.garbage_collection.service import (
    collect_table,
    collect_table_orphans,
    expire_table_versions,
    finish_deletions,
    snapshot_table,
    sweep_abandoned,
)
from sleeper.jobs.event import JobKind
from sleeper.splitting.find import send_new_splits
from sleeper.splitting.service import split_table
from sleeper.statestore.transactions.compaction_jobs import AssignFiles, JobAssignment
from sleeper.tables import TableId
from sleeper.workers.worker import Worker

_MESSAGES_MAX = 4
_LEASE_MS = 3_600_000


def work_once(client: Client) -> bool:
    """Runs the job of one message of the local queues. Returns whether there was one."""
    return Worker(client.instance, client.new_id("task"), threading.Event()).run_one()


@operation(14, always, is_background=True)
def work(client: Client) -> None:
    """Runs the jobs of a few messages."""
    for _ in range(client.random.randint(1, _MESSAGES_MAX)):
        if not work_once(client):
            return


@operation(6, is_background=True)
def create_compactions(client: Client) -> None:
    """Creates the compaction jobs of a table, sometimes of all its files."""
    ref = client.instance.tables.index.find(client.choose_table().name)
    create_table_jobs(client.instance, ref, client.random.random() < 0.3)


@operation(2)
def reuse_job_id(client: Client) -> None:
    """Assigns a file to a compaction job whose id was used before, which the table refuses."""
    table = client.choose_table()
    store = client.instance.table(table.name).state
    jobs = client.instance.jobs.tracker.recent(JobKind.COMPACTION, TableId(table.id))
    with store.reading() as state:
        references = [each for each in state.files.references() if each.job_id is None]
        expiry_ms = state.moment(client.instance.clock()) + _LEASE_MS
    if not jobs or not references:
        return
    used = client.random.choice(sorted(each.job_id for each in jobs))
    free = min(references, key=lambda each: (each.path, each.partition_id))
    assignment = JobAssignment(used, free.partition_id, (free.path,), expiry_ms)
    store.commit_or_raise(AssignFiles((assignment,)))


@operation(3, is_background=True)
def send_splits(client: Client) -> None:
    """Sends the leaves of a table that are to be split to their queue."""
    ref = client.instance.tables.index.find(client.choose_table().name)
    send_new_splits(client.instance, ref)


@operation(1)
def split(client: Client) -> None:
    """Splits the leaves of a table in this process."""
    split_table(client.instance, client.choose_table().name)


@operation(6, is_background=True)
def collect(client: Client) -> None:
    """Collects the unneeded files of a table."""
    collect_table(client.instance, client.choose_table().name)


@operation(1)
def collect_orphans(client: Client) -> None:
    """Collects the objects of runs that ended before their commit."""
    collect_table_orphans(client.instance, client.choose_table().name)


@operation(2, is_background=True)
def save_snapshot(client: Client) -> None:
    """Stores the state of a table and trims its log."""
    ref = client.instance.tables.index.find(client.choose_table().name)
    snapshot_table(client.instance, ref, always=True)


def _has_snapshot_table(client: Client) -> bool:
    return any(each.is_snapshot for each in client.catalogue.active())


@operation(2, _has_snapshot_table, is_background=True)
def expire_versions(client: Client) -> None:
    """Expires versions of a snapshot table."""
    tables = [each for each in client.catalogue.active() if each.is_snapshot]
    expire_table_versions(client.instance, client.random.choice(tables).name)


@operation(1, has_table, is_background=True)
def end_deletions(client: Client) -> None:
    """Removes deleted tables, and what interrupted creations left."""
    finish_deletions(client.instance)
    sweep_abandoned(client.instance)
