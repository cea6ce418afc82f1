"""The table of the exporter `table:NAME`: its creation and checks, and cycles of queues."""

from dataclasses import replace

from sleeper.admin.tables import create_table
from sleeper.errors import ConflictError, InvalidRequestError, NotFoundError, did_you_mean
from sleeper.export_queue.definition import SEQUENCE, ExportQueue, ExportSource, parse_definition
from sleeper.export_queue.store import open_export_store
from sleeper.export_queue.table_queries import queues_in
from sleeper.instance import Instance, OpenTable
from sleeper.properties.table import LATEST_BY, ROWS
from sleeper.schema.latest_rows import LATEST
from sleeper.schema.model import (
    Field,
    FieldType,
    PrimitiveType,
    Schema,
    schema_to_json,
    type_name,
)
from sleeper.statestore.reading.table_state import TableState
from sleeper.tables import TableId, TableRef, check_table_name, find_table

_WIDER: dict[FieldType, FieldType] = {
    PrimitiveType.INT: PrimitiveType.LONG,
    PrimitiveType.FLOAT: PrimitiveType.DOUBLE,
}


def create_target(instance: Instance, queue: ExportQueue, name: str) -> None:
    """Creates the table unless it exists: the newest rows by sequence, in order of the keys."""
    try:
        check_table_name(name)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"export queue {queue.name!r}: {error}") from error
    try:
        instance.tables.index.find(name)
    except NotFoundError:
        sequence = Field(SEQUENCE, PrimitiveType.LONG)
        schema = replace(queue.schema, values=(*queue.schema.values, sequence))
        settings = {ROWS.name: LATEST, LATEST_BY.name: SEQUENCE}
        try:
            create_table(instance, name, schema_to_json(schema), settings)
        except ConflictError:
            # Another process has created it.
            instance.tables.index.find(name)


def check_target(queue: ExportQueue, name: str, state: TableState) -> None:
    """Raises InvalidRequestError if the table cannot have the exports of the queue."""
    what = f"export queue {queue.name!r}: table {name!r}"
    if state.is_snapshot_table:
        raise InvalidRequestError(
            f"{what} is a snapshot table (expected a table to which rows can be added)"
        )
    schema = state.schema
    present = {field.name: field for field in schema.values}
    if SEQUENCE not in present or present[SEQUENCE].type is not PrimitiveType.LONG:
        raise InvalidRequestError(
            f"{what} has no value field {SEQUENCE!r} of type LongType (expected one, for the "
            "sequence numbers)"
        )
    _check_keys(queue, schema, what)
    for value in queue.values:
        if value.name not in present:
            near = did_you_mean(value.name, present)
            raise InvalidRequestError(f"{what} has no value field {value.name!r}{near}")
    for field in (*queue.keys, *queue.values):
        kind = schema.field(field.name).type
        if kind not in (field.type, _WIDER.get(field.type)):
            raise InvalidRequestError(
                f"{what}: field {field.name!r} has type {type_name(kind)} (expected "
                f"{type_name(field.type)}, as in the queue)"
            )
    names = {SEQUENCE, *(each.name for each in queue.values)}
    for other in schema.values:
        if other.name not in names and not other.nullable and other.default is None:
            raise InvalidRequestError(
                f"{what}: field {other.name!r} is not a value of the queue (expected it to be "
                "nullable or to have a default)"
            )


def _check_keys(queue: ExportQueue, schema: Schema, what: str) -> None:
    """The keys of table and queue are the same, so that both mean the same rows."""
    keys, present = {each.name for each in queue.keys}, {each.name for each in schema.keys}
    for field in queue.keys:
        if field.name not in present:
            raise InvalidRequestError(
                f"{what}: key {field.name!r} of the queue is not a row key or sort key of the "
                f"table (its keys are {', '.join(each.name for each in schema.keys)})"
            )
    for field in schema.keys:
        if field.name not in keys:
            raise InvalidRequestError(
                f"{what}: its key field {field.name!r} is not a key of the queue (expected only "
                f"{', '.join(each.name for each in queue.keys)})"
            )


def check_no_cycle(instance: Instance, queue: ExportQueue, source: TableRef) -> None:
    """Raises InvalidRequestError if exports of the table would come back to it for ever.

    Queues on the changes of tables, whose exporters write to tables, form the ways.
    """
    name = _target_name(queue)
    if name is None:
        return
    try:
        first = instance.tables.index.find(name)
    except NotFoundError:
        return
    ways = _find_ways(instance, queue.name)
    paths = [[source, first]]
    visited: set[TableId] = set()
    while paths:
        path = paths.pop()
        if path[-1].id == source.id:
            raise InvalidRequestError(
                f"export queue {queue.name!r} exports changes of table {source.name!r} back to it: "
                f"{' -> '.join(each.name for each in path)} (expected a table from which no queue "
                "leads to it)"
            )
        if path[-1].id not in visited:
            visited.add(path[-1].id)
            paths += [[*path, following] for following in ways.get(path[-1].id, ())]


def _find_ways(instance: Instance, without: str) -> dict[TableId, list[TableRef]]:
    """Returns the tables to which queues export the changes of each table."""
    ways: dict[TableId, list[TableRef]] = {}
    for registered in open_export_store(instance).list():
        if registered.name == without or not registered.generation:
            continue
        try:
            source = find_table(instance.tables.index, None, TableId(registered.table_id))
            with OpenTable(instance, source).state.reading() as state:
                stored = queues_in(state).find(registered.name)
            queue = parse_definition(stored.definition)
            name = _target_name(queue)
            if name is not None and queue.source is not ExportSource.TRANSACTION:
                ways.setdefault(source.id, []).append(instance.tables.index.find(name))
        except NotFoundError:
            # The queue or a table is being deleted.
            continue
    return ways


def _target_name(queue: ExportQueue) -> str | None:
    settings = queue.exporter
    return settings.target if settings.kind == "table" else None
