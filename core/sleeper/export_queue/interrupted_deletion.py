"""The last steps of a deletion, which a process that dies leaves to others.

A deletion is decided by the log of the queue's table. After that, the queue's holds are released,
and its exports and its registration are removed from the storage of queues.
"""

import logging

from sleeper.errors import NotFoundError
from sleeper.export_queue.store import RegisteredQueue, open_export_store
from sleeper.export_queue.table_queries import queues_in
from sleeper.export_queue.version_hold import find_holds
from sleeper.instance import Instance
from sleeper.query.hold import release_hold
from sleeper.tables import TableId, find_table

logger = logging.getLogger(__name__)


def finish_deletion(instance: Instance, queue: RegisteredQueue) -> bool:
    """Removes what is left of a queue that its table does not have. False if the table has it.

    It changes nothing if the table is not active: it may be restored, or brought back.
    """
    try:
        table = find_table(instance.tables.index, None, TableId(queue.table_id))
    except NotFoundError:
        return False
    store = instance.tables.state(table.id)
    with store.reading() as state:
        stored = queues_in(state).find_or_none(queue.name)
        if stored is not None or state.number < queue.generation:
            return False
        held = find_holds(state, queue.name)
    for hold_id in held:
        release_hold(store, hold_id)
    open_export_store(instance).remove(queue.name, queue.generation)
    logger.info("deleted export queue %s", queue.name)
    return True


def finish_interrupted_deletion(instance: Instance, name: str) -> bool:
    """Finishes the deletion of a queue, if the table has deleted it. For background work."""
    queues = {each.name: each for each in open_export_store(instance).list()}
    # Generation 0 is a creation, whose queue the table does not have yet.
    return (
        name in queues and queues[name].generation > 0 and finish_deletion(instance, queues[name])
    )
