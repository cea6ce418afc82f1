"""Checks of the lookups that a table declares for its ingests."""

from collections.abc import Sequence

from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.instance import Instance, OpenTable
from sleeper.processing.enrichment import (
    Lookup,
    check_fields,
    check_not_itself,
    check_source,
    parse_enrichment,
    used_names,
)
from sleeper.processing.field_changes import ConvertField, DropField, FieldChange, RenameField
from sleeper.properties.table import INGEST_ENRICHMENT
from sleeper.schema.model import Schema


def check_enrichment(
    instance: Instance, table_name: str, schema: Schema, declared: str | None
) -> None:
    """Raises InvalidRequestError if the lookups do not fit the table, or the tables they read."""
    if declared is None:
        return
    try:
        _check(instance, table_name, schema, parse_enrichment(declared))
    except (InvalidRequestError, NotFoundError) as error:
        raise InvalidRequestError(f"property {INGEST_ENRICHMENT.name}: {error}") from error


def _check(instance: Instance, table_name: str, schema: Schema, lookups: Sequence[Lookup]) -> None:
    check_fields(lookups, schema)
    for lookup in lookups:
        check_not_itself(lookup, table_name)
        if lookup.table_name is not None:
            with instance.table(lookup.table_name).state.reading() as state:
                source = state.schema
            check_source(lookup, schema, source)


def check_field_changes(table: OpenTable, changes: Sequence[FieldChange]) -> None:
    """Raises InvalidRequestError if a lookup names a field that changes.

    It may not be dropped, renamed or converted.
    """
    declared = table.properties().get(INGEST_ENRICHMENT)
    used = used_names(parse_enrichment(declared)) if declared else ()
    for change in changes:
        if isinstance(change, DropField | RenameField | ConvertField) and change.name in used:
            raise InvalidRequestError(
                f"field {change.name!r} is used by the enrichment of the table (expected a field "
                f"that {INGEST_ENRICHMENT.name} does not name): change the property first"
            )
