"""Which tables can be published: those whose rows are rows of their files, as they are stored.

A table that shows the newest row of each key is so while no two of its files have common keys: when
its leaves are compacted. One that aggregates rows is so if compactions wrote all of its files too.
"""

from sleeper.errors import InvalidRequestError
from sleeper.iceberg.file_rows import all_files, have_common_keys, schema_versions
from sleeper.iceberg.schemas import schema_to_iceberg
from sleeper.schema.model import Field
from sleeper.statestore.reading.table_state import TableState


def check_publishable(name: str, state: TableState) -> None:
    """Raises InvalidRequestError if rows of the table are made when they are read."""
    processing = state.processing
    reasons = {
        "has filters": bool(processing.filters),
        "has an iterator": processing.iterator is not None,
    }
    for reason, applies in reasons.items():
        if applies:
            raise InvalidRequestError(
                f"table {name!r} {reason}, so its rows are not those of its files, which readers "
                "of Iceberg see (expected a table without)"
            )
    if state.is_snapshot_table:
        state.check_has_rows()
    schema_to_iceberg(state.schema)
    _check_defaults(name, state)


def find_uncompacted(state: TableState) -> str | None:
    """Returns why the version must be compacted before it can be published; None if not."""
    if state.schema.latest is not None:
        shown = "shows the newest row of each key"
    elif state.processing.aggregations:
        shown = "aggregates the rows of each key"
        if state.files.has_unaggregated():
            return f"{shown}, and has files with rows that no compaction has aggregated"
    else:
        return None
    has_common = have_common_keys(state.schema, all_files(state))
    return f"{shown}, and has files with common keys" if has_common else None


def _check_defaults(name: str, state: TableState) -> None:
    """Raises InvalidRequestError if files lack a field with a default."""
    lacking = versions_without_defaults(state)
    if lacking:
        field = next(iter(lacking.values()))
        raise InvalidRequestError(
            f"table {name!r} has files without the field {field.name!r}, whose default "
            "readers of Iceberg do not know (expected rewritten files: `sleeper iceberg publish "
            f"{name} --compact`)"
        )


def versions_without_defaults(state: TableState) -> dict[int, Field]:
    """Returns the versions of the schemas of files that lack a field with a default, with one each.

    Readers of Iceberg's format version 2 see null there.
    """
    schema = state.schema
    defaults = [field for field in schema.fields if field.default is not None]
    if not defaults:
        return {}
    result = {}
    for version in schema_versions(state) - {schema.version}:
        stored = {field.id for field in schema.at(version).fields}
        lacking = [field for field in defaults if field.id not in stored]
        if lacking:
            result[version] = lacking[0]
    return result
