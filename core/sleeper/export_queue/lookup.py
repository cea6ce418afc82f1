"""Finds a queue by its name: its registration, its table and its definition."""

from dataclasses import dataclass

from sleeper.errors import NotFoundError
from sleeper.export_queue.definition import ExportQueue, parse_definition
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.export_store import RegisteredQueue
from sleeper.tables import TableId, find_table


@dataclass(frozen=True, slots=True)
class FoundQueue:
    """A queue. `number` is that of the newest transaction of its table."""

    registered: RegisteredQueue
    table: OpenTable
    definition: ExportQueue
    number: int

    @property
    def lag(self) -> int:
        """The number of transactions that are not taken up."""
        return max(0, self.number - self.registered.taken_up.number)


def find_queue(instance: Instance, name: str) -> FoundQueue:
    """Returns a queue. NotFoundError if there is none, or its creation has not ended."""
    registered = instance.jobs.export_store().find(name)
    ref = find_table(instance.tables.index, None, TableId(registered.table_id))
    table = OpenTable(instance, ref)
    with table.state.reading() as state:
        stored = state.export_queues.find(name)
        number = state.number
    if stored.generation != registered.generation:
        raise NotFoundError(
            f"the creation of export queue {name!r} of table {ref.name!r} has not ended: "
            "create it again"
        )
    return FoundQueue(registered, table, parse_definition(stored.definition), number)
