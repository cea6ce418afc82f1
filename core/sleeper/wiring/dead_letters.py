"""Dead letters of an instance's queues: put back, or deleted."""

from sleeper.errors import NotFoundError
from sleeper.reports.dead_letters import gather_dead_letters
from sleeper.reports.listing import Listing
from sleeper.wiring.instance import Instance
from sleeper.wiring.queue_name import QueueName


def list_dead_letters(instance: Instance, queue: str | None = None, limit: int = 100) -> Listing:
    """The oldest dead letters of the queue, or of each queue."""
    names = instance.queues if queue is None else (_queue(instance, queue),)
    letters = {name.value: instance.dead_letters(name) for name in names}
    return gather_dead_letters(letters, limit).listing()


def redrive_dead_letters(instance: Instance, queue: str) -> int:
    """Puts all dead letters back on their queue as never received. Returns how many."""
    return instance.dead_letters(_queue(instance, queue)).redrive()


def delete_dead_letter(instance: Instance, queue: str, message_id: str) -> None:
    """Takes one out for good. NotFoundError if there is none of that id."""
    instance.dead_letters(_queue(instance, queue)).delete(message_id)


def _queue(instance: Instance, name: str) -> QueueName:
    for each in instance.queues:
        if each.value == name:
            return each
    names = ", ".join(each.value for each in instance.queues)
    raise NotFoundError(f"no queue {name!r}; queues are {names}")
