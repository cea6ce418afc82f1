"""Export queues of tables that are restored from a backup."""

from sleeper.errors import ConflictError
from sleeper.export_queue.store import Position, open_export_store
from sleeper.export_queue.table_queries import queues_in
from sleeper.instance import Instance, OpenTable
from sleeper.tables import TableRef


def restore_queues(instance: Instance, table: TableRef) -> None:
    """Registers the export queues of a table, paused, at the restored version.

    ConflictError if the instance has other queues of these names.
    """
    with OpenTable(instance, table).state.reading() as state:
        queues = queues_in(state).all()
    for queue in queues:
        store, start = open_export_store(instance), Position(queue.start)
        found = store.register(queue.name, table.id)
        if found.generation and (found.generation, found.position) != (queue.generation, start):
            raise ConflictError(
                f"export queue {queue.name!r} of table {table.name!r} already exists in "
                f"{instance.where} (expected none: delete it, and restore again)"
            )
        store.pause(queue.name, True)
        store.begin(queue.name, queue.generation, start)
