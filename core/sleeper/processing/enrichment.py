"""The fields of rows that are filled from adjunct stores when the rows are ingested.

The table property `sleeper.table.ingest.enrichment` declares them as JSON: a list of lookups, which
are done in this order. Example:

    [{"store": "accounts", "input": "table:accounts", "on": "account",
      "fields": {"country": "account_country"}, "missing": "null"}]
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

from sleeper.errors import InvalidRequestError
from sleeper.json_codec import Conversion, JsonCodec, Member, MismatchError, parse_json
from sleeper.schema.model import (
    Field,
    FieldType,
    PrimitiveType,
    Schema,
    is_key_type,
    type_name,
)

_TABLE_INPUT = "table:"
_INPUTS = (_TABLE_INPUT, "stash:", "files:")
_STORE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,47}")


class Missing(Enum):
    """What becomes of a row whose key the store does not have: its fields are null, or it fails."""

    NULL = "null"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class KeyFields:
    """The fields of a row that hold a store's key.

    `names` are the key's own fields, None if the row's fields are in the order of the key.
    """

    fields: tuple[str, ...]
    names: tuple[str, ...] | None = None

    def in_order(self, key_names: Sequence[str]) -> tuple[str, ...] | None:
        """Returns the row's fields in the order of the key. None if they do not match the key."""
        if self.names is None:
            return self.fields if len(self.fields) == len(key_names) else None
        by_name = dict(zip(self.names, self.fields, strict=True))
        if by_name.keys() != set(key_names):
            return None
        return tuple(by_name[name] for name in key_names)


@dataclass(frozen=True, slots=True)
class FilledField:
    """A field of the row, and the field of the store's value that fills it."""

    name: str
    source: str


def _to_names(raw: Any, expected: str) -> tuple[str, ...]:
    names = [raw] if isinstance(raw, str) else raw
    if not isinstance(names, list) or not names:
        raise MismatchError(raw, expected)
    if not all(isinstance(each, str) and each for each in names):
        raise MismatchError(raw, expected)
    return tuple(names)


def _to_pairs(raw: dict[str, Any], expected: str) -> dict[str, str]:
    if not raw or not all(isinstance(each, str) and each for each in raw.values()):
        raise MismatchError(raw, expected)
    return raw


_ON = "a field, a list of fields, or an object of a field for each field of the key"
_FIELDS = "a list of fields, or an object of a field for each field of the store"


def _to_on(raw: Any) -> KeyFields:
    if isinstance(raw, dict):
        pairs = _to_pairs(raw, _ON)
        return KeyFields(tuple(pairs.values()), tuple(pairs))
    return KeyFields(_to_names(raw, _ON))


def _to_fields(raw: Any) -> tuple[FilledField, ...]:
    if isinstance(raw, dict):
        return tuple(FilledField(name, source) for source, name in _to_pairs(raw, _FIELDS).items())
    if isinstance(raw, str):
        raise MismatchError(raw, _FIELDS)
    return tuple(FilledField(name, name) for name in _to_names(raw, _FIELDS))


@dataclass(frozen=True, slots=True)
class Lookup:
    """One lookup of a row. `missing` is None if it follows from the filled fields."""

    store: str
    input: str
    on: Annotated[KeyFields, Conversion(_to_on)]
    fields: Annotated[tuple[FilledField, ...], Conversion(_to_fields)]
    missing: Annotated[Missing | None, Member(optional=True)] = None

    @property
    def table_name(self) -> str | None:
        """The name of the table that is the store's input, None for another kind of input."""
        if not self.input.startswith(_TABLE_INPUT):
            return None
        return self.input.removeprefix(_TABLE_INPUT)

    def must_match(self, schema: Schema) -> bool:
        """Returns whether a row is rejected whose key the store does not have."""
        if self.missing is not None:
            return self.missing is Missing.REJECT
        return any(not _may_be_missing(schema.field(each.name)) for each in self.fields)


_CODEC = JsonCodec(Lookup, known=("store", "input", "on", "fields", "missing"))


def parse_enrichment(text: str) -> tuple[Lookup, ...]:
    """Returns the lookups of the property's JSON. InvalidRequestError if it is not valid."""
    raw = parse_json(text, "enrichment")
    if not isinstance(raw, list) or not raw:
        raise InvalidRequestError("enrichment: it is not a list of lookups (expected at least one)")
    lookups = tuple(
        _CODEC.from_json(each, f"enrichment, lookup {index}")
        for index, each in enumerate(raw, start=1)
    )
    inputs: dict[str, str] = {}
    for lookup in lookups:
        if not _STORE_NAME.fullmatch(lookup.store):
            raise InvalidRequestError(
                f"enrichment: store name {lookup.store!r} (expected 1 to 48 letters, digits, - or "
                "_, a letter or digit first)"
            )
        kind, colon, rest = lookup.input.partition(":")
        if kind + colon not in _INPUTS or not rest:
            raise _error(
                lookup,
                f"unknown input {lookup.input!r} (expected table:NAME, stash:DESTINATION#TABLE or "
                "files:PATH)",
            )
        first = inputs.setdefault(lookup.store, lookup.input)
        if first != lookup.input:
            raise InvalidRequestError(
                f"enrichment: store {lookup.store!r} has the inputs {first} and {lookup.input} "
                "(expected one)"
            )
    return lookups


def enriched_names(lookups: Sequence[Lookup]) -> frozenset[str]:
    """Returns the fields that the lookups fill."""
    return frozenset(each.name for lookup in lookups for each in lookup.fields)


def used_names(lookups: Sequence[Lookup]) -> frozenset[str]:
    """Returns the fields of the table that the lookups name."""
    return enriched_names(lookups).union(name for lookup in lookups for name in lookup.on.fields)


def check_fields(lookups: Sequence[Lookup], schema: Schema) -> None:
    """Raises InvalidRequestError if the lookups do not fit the fields of the table."""
    fields = {each.name: each for each in schema.fields}
    unfilled = set(enriched_names(lookups))
    filled: set[str] = set()
    for lookup in lookups:
        for name in lookup.on.fields:
            _check_on(lookup, name, fields, unfilled)
        for each in lookup.fields:
            if each.name in filled:
                raise _error(lookup, f"field {each.name!r} is filled twice (expected once)")
            _check_filled(lookup, each.name, fields, schema)
            filled.add(each.name)
        unfilled -= filled


def check_not_itself(lookup: Lookup, table_name: str) -> None:
    """Raises InvalidRequestError if the lookup reads the table whose rows it fills."""
    if lookup.table_name == table_name:
        raise _error(
            lookup,
            f"its input is table {table_name!r} itself, whose rows it fills (expected another "
            "table)",
        )


def check_source(lookup: Lookup, schema: Schema, source: Schema) -> None:
    """Raises InvalidRequestError if the lookup does not fit the table that fills the store."""
    values = (*source.sort_keys, *source.values)
    check_layout(
        lookup,
        schema,
        {each.name: each.type for each in source.row_keys},
        {each.name: each.type for each in values},
    )


def check_layout(
    lookup: Lookup,
    schema: Schema,
    keys: Mapping[str, FieldType],
    values: Mapping[str, FieldType],
) -> tuple[str, ...]:
    """Returns the row's fields in the order of the store's key.

    InvalidRequestError if the lookup does not fit the keys and values of the store.
    """
    fields = lookup.on.in_order(tuple(keys))
    if fields is None:
        raise _error(lookup, f"the key is {', '.join(keys)} (expected a field of the row for each)")
    for name, (key, kind) in zip(fields, keys.items(), strict=True):
        given = schema.field(name).type
        if not _widens(given, kind):
            raise _error(
                lookup,
                f"field {name!r} is {type_name(given)}, and the key {key!r} is {type_name(kind)} "
                "(expected the same type)",
            )
    for each in lookup.fields:
        if each.source not in values:
            raise _error(
                lookup, f"it has no field {each.source!r} (expected one of: {', '.join(values)})"
            )
        kind, target = values[each.source], schema.field(each.name).type
        if not _widens(kind, target):
            raise _error(
                lookup,
                f"its field {each.source!r} is {type_name(kind)}, and field {each.name!r} of the "
                f"table is {type_name(target)} (expected the same type)",
            )
    return fields


_WIDER = {
    PrimitiveType.INT: {PrimitiveType.LONG},
    PrimitiveType.FLOAT: {PrimitiveType.DOUBLE},
}


def _widens(source: FieldType, target: FieldType) -> bool:
    """Returns whether every value of the type is one of the other."""
    if source == target:
        return True
    return isinstance(source, PrimitiveType) and target in _WIDER.get(source, ())


def _check_on(lookup: Lookup, name: str, known: Mapping[str, Field], unfilled: set[str]) -> None:
    if name not in known:
        raise _error(lookup, f"the table has no field {name!r} (expected {', '.join(known)})")
    if not is_key_type(known[name].type):
        raise _error(
            lookup, f"field {name!r} is {type_name(known[name].type)}, which is no type of keys"
        )
    if name in unfilled:
        raise _error(
            lookup,
            f"field {name!r} is part of its key and filled only later (expected an earlier lookup)",
        )


def _check_filled(lookup: Lookup, name: str, known: Mapping[str, Field], schema: Schema) -> None:
    values = {each.name for each in schema.values}
    if name not in values:
        what = "is a key field" if name in known else "does not exist"
        raise _error(
            lookup, f"field {name!r} {what} (expected a value field: {', '.join(sorted(values))})"
        )
    if lookup.missing is Missing.NULL and not _may_be_missing(known[name]):
        raise _error(
            lookup,
            f"field {name!r} is not nullable and has no default (expected "
            f'"missing": "{Missing.REJECT.value}")',
        )


def _may_be_missing(field: Field) -> bool:
    return field.nullable or field.default is not None


def _error(lookup: Lookup, problem: str) -> InvalidRequestError:
    return InvalidRequestError(f"enrichment from store {lookup.store!r}: {problem}")
