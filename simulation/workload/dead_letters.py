"""Operations on dead letters: messages that no worker can read, and what an operator does.

A message of which every receive fails becomes a dead letter. An operator redrives dead letters when
their cause has ended, and deletes those that nobody will ever read.
"""

from simulation.model.journal import Journal
from simulation.workload.client import Client
from simulation.workload.registry import always, operation
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.properties.instance import QUEUE_RECEIVES_MAX

_RECEIVES_MAX = 10
_BODIES = ("no job", "{}", "[]", '{"id": 5, "files": 7}', '{"tableName": "none"}')


def _choose_queue(client: Client) -> QueueName:
    return client.random.choice(list(client.instance.jobs.queues))


def _has_few_receives(client: Client) -> bool:
    """An unreadable message is received so often before it is a dead letter."""
    return client.instance.properties().get(QUEUE_RECEIVES_MAX) <= _RECEIVES_MAX


@operation(1, _has_few_receives)
def send_unreadable(client: Client) -> None:
    """Sends a message that no worker can read. A queue of groups refuses it."""
    body = client.random.choice(_BODIES)
    client.journal.unreadable.add(body)
    client.instance.jobs.queue(_choose_queue(client)).send(body)


@operation(1, always)
def look_at_dead_letters(client: Client) -> None:
    """Lists the dead letters of a queue."""
    client.instance.jobs.dead_letters(_choose_queue(client)).list()


@operation(1, always)
def redrive_dead_letters(client: Client) -> None:
    """Moves the dead letters of all queues back to them."""
    for name in client.instance.jobs.queues:
        client.instance.jobs.dead_letters(name).redrive()


def solve_dead_letters(instance: Instance, journal: Journal) -> None:
    """Deletes unreadable dead letters of all queues, and redrives the others."""
    for name in instance.jobs.queues:
        letters = instance.jobs.dead_letters(name)
        dead = letters.list()
        unreadable = [each for each in dead if each.body in journal.unreadable]
        for each in unreadable:
            letters.delete(each.message_id)
        if len(unreadable) < len(dead):
            letters.redrive()
