"""The fields of data files: those of an earlier schema, and the hidden columns of latest rows."""

from dataclasses import dataclass, replace

from sleeper.schema.model import (
    DELETED_COLUMN,
    NUMBER_COLUMN,
    Field,
    PrimitiveType,
    Schema,
)

# Ids of the fields of a table are small.
NUMBER_FIELD = Field(NUMBER_COLUMN, PrimitiveType.LONG, id=2_000_000_001)
_DELETED_FIELD = Field(DELETED_COLUMN, PrimitiveType.BOOLEAN, nullable=True, id=2_000_000_002)


def stored_schema(schema: Schema, version: int | None) -> Schema:
    """Returns the schema of a file of that version, None for the version of `schema`.

    `schema` may have fewer fields than its version: then the engine reads only these.
    """
    return schema if version is None or version == schema.version else schema.at(version)


@dataclass(frozen=True, slots=True)
class Stored:
    """What a merge of latest rows writes for later merges: hidden columns and tombstones.

    Tombstones with a number of at most `hiding_from` hide nothing and are dropped.
    """

    has_numbers: bool = True
    has_tombstones: bool = True
    hiding_from: int = 0


def with_hidden(schema: Schema, has_numbers: bool, has_tombstones: bool) -> Schema:
    """Returns the fields of a data file of the table, with the hidden columns that it has."""
    hidden = [NUMBER_FIELD] * has_numbers + [_DELETED_FIELD] * has_tombstones
    return replace(schema, values=(*schema.values, *hidden), latest=None)
