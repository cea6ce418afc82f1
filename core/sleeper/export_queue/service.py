"""Creation, changes and deletion of export queues.

A queue is registered in the storage of queues, which makes its name unique, then committed to the
log of its table, and then begins. A repeated creation completes one that was interrupted.
"""

from sleeper.errors import ConflictError, InvalidRequestError, NotFoundError, StateMovedOnError
from sleeper.export_queue.capture import capture_exports, first_position
from sleeper.export_queue.control import queue_status
from sleeper.export_queue.definition import (
    EXPORT_QUEUES,
    ExportQueue,
    check_queue_name,
    parse_definition,
)
from sleeper.export_queue.exporters import check_exporter
from sleeper.export_queue.exporters.target_table import check_no_cycle
from sleeper.export_queue.function_checks import check_functions
from sleeper.export_queue.parsing import (
    NewQueue,
    check_same,
    check_source,
    define_queue,
    replace_queue,
)
from sleeper.export_queue.registration import begin_queue, finish_deletion
from sleeper.export_queue.store import Position, open_export_store
from sleeper.export_queue.table_queries import StoredQueue, queues_in
from sleeper.export_queue.transactions import (
    ChangeExportQueue,
    CreateExportQueue,
    DeleteExportQueue,
    follower_of,
)
from sleeper.instance import Instance, OpenTable
from sleeper.tables import TableId, find_table

_CAPTURE_SECONDS = 10.0


def create_queue(instance: Instance, new: NewQueue) -> ExportQueue:
    """Creates a queue on a table, and returns its definition.

    `on` is the name of an `ExportSource`. `keys` and `values` are names of fields of the table, or
    for a queue on transactions also `NAME:TYPE`. With `replace`, an existing queue gets another
    exporter, and the numbers that are given; `on`, keys and values may be left out.

    InvalidRequestError for arguments that are not valid, also if the queue exists and its source,
    keys, values or number of buckets differ; ConflictError if the name is taken.
    """
    name, table = new.name, instance.table(new.table)
    with table.state.reading() as state:
        schema, is_snapshot_table = state.schema, state.is_snapshot_table
        present = next((each for each in queues_in(state).all() if each.name == name), None)
    _check_name(instance, table, name, present, new.replace)
    if present is not None and new.replace:
        queue = replace_queue(parse_definition(present.definition), new)
    else:
        queue = define_queue(new, schema)
        check_source(queue, new.table, is_snapshot_table)
        if present is not None:
            check_same(parse_definition(present.definition), queue)
    # Values of other types in Python would make a definition that cannot be read again.
    EXPORT_QUEUES.parse(EXPORT_QUEUES.format(queue), f"export queue {name!r}")
    check_no_cycle(instance, queue, table.ref)
    check_exporter(instance, queue)
    check_functions(instance, queue)
    _commit(instance, table, queue, present)
    return queue


def delete_queue(instance: Instance, name: str, discard: bool = False) -> None:
    """Deletes a queue with its dead letters.

    InvalidRequestError if exports are pending or dead, or transactions are not captured yet,
    unless `discard` loses them.
    """
    store = open_export_store(instance)
    registered = store.find(name)
    try:
        ref = find_table(instance.tables.index, None, registered.table_id)
    except NotFoundError:
        store.remove(name)  # the table is gone
        return
    state = OpenTable(instance, ref).state
    with state.reading() as now:
        is_present = queues_in(now).find_or_none(name) is not None
    if is_present and registered.generation and not discard:
        _check_empty(instance, name)
    state.commit_or_raise(DeleteExportQueue(name))
    finish_deletion(instance, registered)


def _check_empty(instance: Instance, name: str) -> None:
    """Captures what the table has, and raises InvalidRequestError if exports are left."""
    capture_exports(instance, name, _CAPTURE_SECONDS)
    if left := queue_status(instance, name).describe_left():
        raise InvalidRequestError(
            f"export queue {name!r} is not empty: {left} (expected none: export them with "
            "`sleeper export-queue drain`, or lose them with --discard)"
        )


def _check_name(
    instance: Instance, table: OpenTable, name: str, present: StoredQueue | None, replaces: bool
) -> None:
    """Raises ConflictError if another queue has the name. Makes way for a new one.

    The queue itself may be present: its creation was interrupted, or it gets another exporter.
    """
    check_queue_name(name)
    store = open_export_store(instance)
    registered = next((each for each in store.list() if each.name == name), None)
    if registered is not None and registered.table_id != table.ref.id:
        tables = {each.id: each.name for each in instance.tables.index.list()}
        other = tables.get(TableId(registered.table_id), "that was deleted")
        raise ConflictError(
            f"export queue {name!r} already exists, on table {other} (expected another name)"
        )
    if registered is None or not registered.generation:
        return
    if present is None:
        store.remove(name, registered.generation)  # its deletion was interrupted
    elif not replaces:
        raise ConflictError(
            f"export queue {name!r} already exists (replace it with --replace, or choose another "
            "name)"
        )


def _commit(
    instance: Instance, table: OpenTable, queue: ExportQueue, present: StoredQueue | None
) -> None:
    store, name = open_export_store(instance), queue.name
    table.check_active()
    registered = store.register(name, table.ref.id)
    text = EXPORT_QUEUES.format(queue)
    try:
        if present is None:
            table.state.commit_or_raise(CreateExportQueue(name, queue.source.value, text))
        else:
            table.state.commit_or_raise(ChangeExportQueue(name, present.generation, text))
    except StateMovedOnError as error:
        raise ConflictError(f"export queue {name!r} was changed meanwhile: {error}") from error
    with table.state.reading() as state:
        stored = queues_in(state).find(name)
    begin_queue(table, registered, stored, _find_start(table, queue, stored))


def _find_start(table: OpenTable, queue: ExportQueue, stored: StoredQueue) -> Position:
    """Returns the position at which a queue begins, also one that lost its storage.

    That is the cursor in the log if it has moved: what is before it may be gone.
    """
    follower = follower_of(queue.name)
    position = max(each.position for each in table.state.followers() if each.name == follower)
    return Position(position) if position > stored.start else first_position(queue, stored)
