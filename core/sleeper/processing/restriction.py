"""The columns and rows of a table that a caller may query.

The table property `sleeper.table.query.callers` declares them as JSON: an object with one
member per caller, and `*` for all others. It names fields of the newest schema. A restriction
applies before the query, so no query can bypass it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from sleeper.errors import InvalidRequestError
from sleeper.json_codec import Conversion, JsonCodec, Member, camel_case, parse_object
from sleeper.processing.model import IteratorCall
from sleeper.processing.text import iterator_members
from sleeper.schema.model import Schema

EVERYBODY = "*"


@dataclass(frozen=True, slots=True)
class Restriction:
    """The visible value fields, None for all, and an iterator that every row passes."""

    value_fields: Annotated[tuple[str, ...] | None, Member(optional=True)] = None
    iterator: Annotated[
        IteratorCall | None, Member(flat=True), iterator_members("iterator", "config")
    ] = None


NO_RESTRICTION = Restriction()
# Unknown members are refused: a restriction that was misspelt would permit more.
_CODEC = JsonCodec(Restriction, camel_case, known=("valueFields", "iterator", "config"))
RESTRICTION = Conversion(_CODEC.decode, _CODEC.to_json)


def find_restriction(callers: str | None, caller: str, table_name: str) -> Restriction:
    """Returns the restriction of a caller. Without a property, callers are unrestricted.

    A caller on AWS is `<role id>:<session>`; the property may name the role alone.
    InvalidRequestError if the caller may not query the table.
    """
    if not callers:
        return NO_RESTRICTION
    restrictions = parse_callers(callers)
    for name in (caller, caller.partition(":")[0], EVERYBODY):
        if name in restrictions:
            return restrictions[name]
    raise InvalidRequestError(f"caller {caller!r} may not query table {table_name!r}")


def find_chain_restriction(
    callers: str | None, chain: Sequence[str], table_name: str
) -> Restriction:
    """Returns the restriction of the last caller, on whose behalf the callers before it act.

    InvalidRequestError if one of those is restricted: it could act for a caller with more access.
    """
    *before, last = chain
    for caller in before:
        if find_restriction(callers, caller, table_name) != NO_RESTRICTION:
            raise InvalidRequestError(
                f"caller {caller!r} may not query table {table_name!r} on behalf of another"
            )
    return find_restriction(callers, last, table_name)


def parse_callers(text: str) -> dict[str, Restriction]:
    """Parses the property into restrictions by caller. InvalidRequestError if it is invalid."""
    raw = parse_object(text, "callers")
    return {
        caller: NO_RESTRICTION if each is None else _CODEC.from_json(each, f"caller {caller!r}")
        for caller, each in raw.items()
    }


def restrict_version(restriction: Restriction, schema: Schema, newest: Schema) -> Restriction:
    """Returns the restriction for a version with that schema, whose fields may have other names.

    InvalidRequestError if the restriction's iterator would read another field under a name.
    """
    if restriction == NO_RESTRICTION or schema.version == newest.version:
        return restriction
    ids = {field.name: field.id for field in newest.values}
    if restriction.iterator is not None:
        for field in schema.values:
            if ids.get(field.name, field.id) != field.id:
                raise InvalidRequestError(
                    f"field {field.name!r} was another field at this version: the caller's "
                    f"iterator {restriction.iterator.name} cannot read it (expected a newer "
                    "version)"
                )
    if restriction.value_fields is None:
        return restriction
    allowed = {ids[name] for name in restriction.value_fields if name in ids}
    names = tuple(field.name for field in schema.values if field.id in allowed)
    return replace(restriction, value_fields=names)


def restrict_callers(callers: str, schema: Schema, newest: Schema) -> str:
    """Returns the property of callers for a clone, which begins with an older schema."""
    restrictions = parse_callers(callers)
    mapped = {name: restrict_version(each, schema, newest) for name, each in restrictions.items()}
    if mapped == restrictions:
        return callers
    return json.dumps({name: _CODEC.to_json(each) for name, each in mapped.items()})


def visible_columns(
    restriction: Restriction, schema: Schema, columns: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """Returns the columns of a query, by default all visible columns.

    InvalidRequestError if the query names a hidden column.
    """
    if restriction.value_fields is None:
        return columns
    keys = [f.name for f in schema.keys]
    allowed = (*keys, *(f.name for f in schema.values if f.name in restriction.value_fields))
    for name in columns or ():
        if name not in allowed:
            raise InvalidRequestError(
                f"field {name!r} is not visible to the caller (visible: {', '.join(allowed)})"
            )
    return allowed if columns is None else columns


def visible_schema(restriction: Restriction, schema: Schema) -> Schema:
    """Returns the schema of the rows that a caller sees: without hidden value fields.

    Queries return the latest rows only, so their schema has no `latest`.
    """
    allowed = restriction.value_fields
    fields = tuple(f for f in schema.values if allowed is None or f.name in allowed)
    return replace(schema, values=fields, latest=None)
