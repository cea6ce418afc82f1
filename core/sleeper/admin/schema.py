"""Changes of a table's schema (design note 13)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sleeper.admin.code import check_iterator
from sleeper.admin.enrichment import check_field_changes
from sleeper.admin.properties import describe_document, format_processing
from sleeper.errors import ConflictError, InvalidRequestError, UnavailableError
from sleeper.instance import Instance, OpenTable
from sleeper.processing.field_changes import DropField, FieldChange, RenameField
from sleeper.processing.restriction import parse_callers
from sleeper.properties.table import QUERY_CALLERS, SCHEMA
from sleeper.schema.model import Schema, schema_to_json
from sleeper.statestore.transactions.change_schema import ChangeSchema
from sleeper.statestore.transactions.transaction import Status, new_transaction_id


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A change, with the schema after it. `already_done`: there was nothing to change.

    `number` is that of its transaction, None if there was none.
    """

    id: str
    number: int | None
    schema: Schema
    already_done: bool


def change_schema(
    instance: Instance,
    table_name: str,
    changes: Sequence[FieldChange],
    change_id: str | None = None,
) -> SchemaChange:
    """Changes the fields of a table, in one transaction; no file is rewritten.

    A repeated call with the id of an earlier one, within 30 days, changes nothing. Compaction
    jobs that run give their files back. InvalidRequestError if a change cannot be made;
    ConflictError if the id was used for other changes. After
    UnavailableError the schema may or may not be changed: repeat the call with the id in the
    message.
    """
    if not changes:
        raise InvalidRequestError("no change of the schema (expected at least one)")
    table = instance.table(table_name)
    transaction = ChangeSchema(tuple(changes), id=change_id or new_transaction_id())
    _check_callers(table, changes)
    check_field_changes(table, changes)
    _check_iterator(table, transaction)
    try:
        (outcome,) = table.state.commit(transaction)
    except UnavailableError as error:
        raise UnavailableError(
            f"{error}; change not confirmed: repeating it with the id {transaction.id!r} makes "
            "it once"
        ) from error
    if outcome.refused:
        with table.state.reading() as state:
            is_used = state.jobs.applied(transaction.id, transaction.kind) is not None
        error_type = ConflictError if is_used else InvalidRequestError
        raise error_type(f"cannot change the schema of table {table_name!r}: {outcome.reason}")
    schema = _publish(table)
    done = outcome.status is Status.ALREADY_DONE
    return SchemaChange(transaction.id, outcome.number, schema, done)


def _check_callers(table: OpenTable, changes: Sequence[FieldChange]) -> None:
    """Checks that callers of the table are not restricted by names that change.

    Another field could get the name later, and would be visible to them.
    """
    callers = table.properties().get(QUERY_CALLERS)
    restrictions = parse_callers(callers) if callers else {}
    for change in changes:
        if not isinstance(change, DropField | RenameField):
            continue
        for caller, restriction in restrictions.items():
            if change.name in (restriction.value_fields or ()):
                raise InvalidRequestError(
                    f"field {change.name!r} is visible to the caller {caller!r} by its name "
                    f"(expected a field that {QUERY_CALLERS.name} does not name): change the "
                    "property first"
                )


def _check_iterator(table: OpenTable, transaction: ChangeSchema) -> None:
    with table.state.reading() as state:
        call = state.processing.iterator
        if call is None or state.jobs.applied(transaction.id, transaction.kind) is not None:
            return
        after = transaction.after(state.table_shape)
    check_iterator(table.instance, table.ref.name, after.schema, call)


def _publish(table: OpenTable) -> Schema:
    """Writes the newest schema and processing to the table's properties, where users read them."""
    with table.state.reading() as state:
        schema, processing = state.schema, state.processing
    fields = schema_to_json(replace(schema, latest=None))
    described = {**describe_document(schema), **format_processing(processing)}
    table.instance.tables.properties.change(table.ref.id, {SCHEMA.name: fields, **described})
    return schema
