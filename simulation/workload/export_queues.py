"""Operations of export queues: creation, drains, pauses, redrives, deletion."""

from simulation.systems.receiver import NAME_OPTION, RECEIVERS
from simulation.workload.client import Client
from simulation.workload.registry import operation
from sleeper.export_queue import control
from sleeper.export_queue.parsing import NewQueue
from sleeper.export_queue.queue_worker import drain_now
from sleeper.export_queue.service import create_queue, delete_queue

QUEUES_MAX = 3
_BUCKETS = (1, 2, 7)
_DRAIN_SECONDS = (None, 5.0, 200.0)


def _has_room(client: Client) -> bool:
    return bool(client.catalogue.active()) and len(client.journal.queues) < QUEUES_MAX


def _has_queue(client: Client) -> bool:
    return bool(client.journal.queues)


@operation(3, _has_room)
def create_export_queue(client: Client) -> None:
    """Creates a queue of the changes of a table."""
    table, random = client.choose_table(), client.random
    schema = client.schema(table)
    name = f"queue-{len(client.journal.queues) + 1}"
    keys = [each.name for each in schema.row_keys]
    values = [each.name for each in schema.values if random.random() < 0.4]
    client.journal.queues.append(name)
    new = NewQueue(
        name=name,
        table=table.name,
        on="snapshot" if table.is_snapshot else "ingest",
        keys=keys if random.random() < 0.7 else keys[:1],
        values=values,
        exporter=client.environment.exporter,
        options={NAME_OPTION: name},
        buckets=random.choice(_BUCKETS),
        buffer_bytes=random.choice((1, 1000, 1_000_000)),
        tries=random.choice((1, 2, 5)),
        timeout_seconds=random.choice((1, 60)),
        existing_rows=random.random() < 0.5,
    )
    create_queue(client.instance, new)


def _choose_queue(client: Client) -> str:
    return client.random.choice(client.journal.queues)


@operation(3, _has_queue)
def drain_export_queue(client: Client) -> None:
    """Exports what a queue has, in this process."""
    drain_now(client.instance, _choose_queue(client), client.random.choice(_DRAIN_SECONDS))


@operation(1, _has_queue)
def pause_export_queue(client: Client) -> None:
    """Pauses a queue."""
    control.pause_queue(client.instance, _choose_queue(client))


@operation(2, _has_queue)
def resume_export_queue(client: Client) -> None:
    """Resumes a queue."""
    control.resume_queue(client.instance, _choose_queue(client))


@operation(2, _has_queue)
def redrive_export_queue(client: Client) -> None:
    """Makes dead letters pending again."""
    name = _choose_queue(client)
    RECEIVERS.find(name).is_ordered = False
    control.redrive(client.instance, name)


@operation(1, _has_queue)
def look_at_export_queue(client: Client) -> None:
    """Reads the status of a queue, what is pending, and its split points."""
    name = _choose_queue(client)
    status = control.queue_status(client.instance, name)
    control.peek(client.instance, name, dead=client.random.random() < 0.5)
    control.split_points(name, status.buckets, 2)


@operation(0.5, _has_queue)
def delete_export_queue(client: Client) -> None:
    """Deletes a queue, sometimes with its exports."""
    delete_queue(client.instance, _choose_queue(client), client.random.random() < 0.5)
