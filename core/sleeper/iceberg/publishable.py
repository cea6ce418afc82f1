"""Which tables can be published: those whose rows are rows of their files, as they are stored.

A table that shows the newest row of each key is so while no two of its files have common keys: when
its leaves are compacted.
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
        "has aggregations": bool(processing.aggregations),
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


def must_be_compacted(state: TableState) -> bool:
    """Returns whether the version has to be compacted before it can be published."""
    latest = state.schema.latest
    return latest is not None and have_common_keys(state.schema, all_files(state))


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
