"""Deletes from Spark: of the keys in a DataFrame, and by a condition on row key fields.

They are functions, because Spark has no `DELETE FROM` for Python data sources: the tables that it
makes of them can be read, written and truncated, and nothing else.
"""

from typing import TYPE_CHECKING

from sleeper.deletion.service import REGIONS_MAX, DeleteResult, check_delete_id, delete_table_rows
from sleeper.errors import InvalidRequestError
from sleeper.instance import OpenTable
from sleeper.partitions.condition import parse_condition
from sleeper.query.request import make_key_regions
from sleeper.query.service import read_schema
from sleeper.schema.model import Schema
from sleeper.spark.options import cached_instance, read_instance
from sleeper.statestore.transactions.delete_rows import DeleteRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def delete_keys(
    keys: "DataFrame", table: str, instance: str | None = None, delete_id: str | None = None
) -> DeleteResult:
    """Deletes the rows with the keys of a DataFrame from a table, in one transaction.

    The DataFrame has a column for each row key field and no others, with at most 10,000 distinct
    keys. Rows that are written later are kept. `instance` is a folder or `aws:INSTANCE_ID`, by
    default SLEEPER_INSTANCE. `delete_id` makes the call idempotent: after a delete of the table
    under the id, within 30 days, a call changes nothing and does not compute the DataFrame. The
    default is a random id.

    Raises `InvalidRequestError` for wrong columns, for a value that does not fit its field, and for
    a DataFrame without rows or with too many. After `UnavailableError` the rows may or may not be
    deleted: repeat the call with the id in the error's message.
    """
    opened = _open_table(table, instance)
    schema = _schema(opened)
    names = [field.name for field in schema.row_keys]
    _check_columns(keys.columns, names)
    earlier = _find_earlier(opened, delete_id)
    if earlier is not None:
        return earlier
    found = keys.select(*map(_quote, names)).distinct().limit(REGIONS_MAX + 1).collect()
    if len(found) > REGIONS_MAX:
        raise InvalidRequestError(
            f"more than {REGIONS_MAX:,} keys in the DataFrame (expected at most {REGIONS_MAX:,})"
        )
    if not found:
        raise InvalidRequestError("no keys in the DataFrame (expected at least one)")
    try:
        regions = make_key_regions(schema, found)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"keys in the DataFrame: {error}") from error
    return delete_table_rows(opened, regions, delete_id)


def delete_where(
    condition: str, table: str, instance: str | None = None, delete_id: str | None = None
) -> DeleteResult:
    """Deletes the rows of a table that fulfil a condition on row key fields, in one transaction.

    A condition compares fields with values: `city = 'Oslo' AND day BETWEEN 3 AND 5`. It has
    `=`, `<`, `<=`, `>`, `>=`, `BETWEEN`, `IN`, `AND`, `OR` and parentheses. Text is in single
    quotes, bytes are as `X'0a1b'`. `instance` and `delete_id` are those of `delete_keys`, but the
    id of a delete of other rows is refused.

    Raises `InvalidRequestError` for a condition that has anything else, such as a field that is
    no row key field, and for one that no key fulfils; `ConflictError` if the id was used for other
    rows. After `UnavailableError` the rows may or may not be deleted: repeat the call with the id
    in the error's message.
    """
    opened = _open_table(table, instance)
    regions = parse_condition(_schema(opened), condition)
    if not regions:
        raise InvalidRequestError(f"no key fulfils the condition {condition!r:.200}")
    return delete_table_rows(opened, regions, delete_id)


def _open_table(table: str, instance: str | None) -> OpenTable:
    where = read_instance({} if instance is None else {"instance": instance})
    return cached_instance(where).table(table)


def _schema(table: OpenTable) -> Schema:
    return read_schema(table.instance, table.ref.name)


def _quote(name: str) -> str:
    """Returns a name for Spark, which would read a dot as a field of a structure."""
    return "`" + name.replace("`", "``") + "`"


def _check_columns(columns: list[str], names: list[str]) -> None:
    if sorted(columns) != sorted(names):
        raise InvalidRequestError(
            f"columns of the DataFrame: {', '.join(columns)} (expected the row key fields "
            f"{', '.join(names)})"
        )


def _find_earlier(table: OpenTable, delete_id: str | None) -> DeleteResult | None:
    """Returns the delete that used the id. The DataFrame may depend on the rows that it deleted."""
    if delete_id is None:
        return None
    check_delete_id(delete_id)
    with table.state.reading() as state:
        applied = state.jobs.applied(delete_id, DeleteRows.kind)
    if applied is None:
        return None
    return DeleteResult(delete_id, applied.number, 0, already_done=True)
