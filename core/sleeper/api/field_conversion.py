"""The conversion of a field of text to JSON, after all rows are read, and back."""

import logging
from dataclasses import replace

from sleeper.admin.schema import SchemaChange, change_schema
from sleeper.datafiles.json_limits import JsonLimits
from sleeper.errors import ConflictError, InvalidRequestError, StateMovedOnError
from sleeper.instance import Instance, OpenTable
from sleeper.processing.field_changes import ConvertField, table_shape
from sleeper.processing.model import NO_PROCESSING
from sleeper.properties.instance import JSON_BYTES_MAX, JSON_DEPTH_MAX
from sleeper.query.run import RESTARTS
from sleeper.query.service import make_query_table
from sleeper.query.text_of_json import check_text
from sleeper.retries import retry
from sleeper.schema.model import FieldType, PrimitiveType
from sleeper.statestore.transactions.change_schema import ChangeSchema
from sleeper.statestore.transactions.check_unchanged import CHANGED
from sleeper.statestore.transactions.transaction import new_transaction_id

logger = logging.getLogger(__name__)

_FAULTS_MAX = 10
_ATTEMPTS = 5


def convert_field(
    instance: Instance,
    table_name: str,
    name: str,
    field_type: FieldType,
    change_id: str | None = None,
) -> SchemaChange:
    """Makes a field of text JSON, or a field of JSON text, as `change_schema`.

    Text becomes JSON if the text of all rows is JSON within the limits of the instance. The rows of
    one version are read, and the change is made only if no rows were added or deleted since;
    otherwise the rows are read again, a few times. InvalidRequestError with the first rows that
    are not JSON; ConflictError if rows were added each time.
    """
    change = ConvertField(name, field_type)
    change_id = change_id or new_transaction_id()
    if field_type is not PrimitiveType.JSON:
        return change_schema(instance, table_name, (change,), change_id)
    earlier = _find_earlier(instance.table(table_name), change, change_id)
    if earlier is not None:
        return earlier
    for attempt in range(1, _ATTEMPTS + 1):
        checked = replace(change, checked=_check_rows(instance, table_name, change))
        try:
            return change_schema(instance, table_name, (checked,), change_id)
        except InvalidRequestError as error:
            if CHANGED not in str(error):
                raise
            logger.info("attempt %d to convert field %s: %s", attempt, name, error)
    raise ConflictError(
        f"cannot convert field {name!r} of table {table_name!r}: in each of {_ATTEMPTS} attempts "
        "rows were added or deleted while they were read (expected a pause of ingests)"
    )


def _find_earlier(table: OpenTable, change: ConvertField, change_id: str) -> SchemaChange | None:
    """Returns the same change that was made under the id, if any; it read an earlier version."""
    with table.state.reading() as state:
        applied = state.jobs.applied(change_id, ChangeSchema.kind)
        if applied is None:
            return None
        before, after = state.schema_at(applied.number - 1), state.schema_at(applied.number)
        checked = replace(change, checked=applied.number - 1)
        expected = (checked.apply(table_shape(before, (), NO_PROCESSING))).schema.fields
        if expected != after.fields:
            raise ConflictError(
                f"cannot change the schema of table {table.ref.name!r}: id {change_id} was used by "
                f"transaction {applied.number} with other content"
            )
        return SchemaChange(change_id, applied.number, state.newest_schema, True)


def _check_rows(instance: Instance, table_name: str, change: ConvertField) -> int:
    """Returns the version that was read. InvalidRequestError if text of it is not JSON."""
    table = instance.table(table_name)
    with table.state.reading() as state:
        change.apply(state.table_shape)
    properties = instance.properties()
    limits = JsonLimits(properties.get(JSON_DEPTH_MAX), properties.get(JSON_BYTES_MAX))
    engine, target = instance.queries.engine(), make_query_table(table)
    check = retry(
        lambda: check_text(target, engine, change.name, limits, _FAULTS_MAX),
        on=StateMovedOnError,
        backoff=RESTARTS,
    )
    if check.faults:
        count = len(check.faults)
        rows = "1 row" if count == 1 else f"{count} rows"
        more = ", and perhaps more" if count == _FAULTS_MAX else ""
        raise InvalidRequestError(
            f"cannot change the schema of table {table_name!r}: text of field {change.name!r} is "
            f"not JSON in {rows}{more}: {'; '.join(check.faults)}"
        )
    return check.version
