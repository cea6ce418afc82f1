"""The schema JSON of a user. Members that a schema does not have are errors: they may be misspelt.

Schemas in logs and files may have members of a later version, which `schema_from_json` ignores.
"""

import contextlib
import json
from collections.abc import Collection
from typing import Any

from sleeper.errors import InvalidRequestError, did_you_mean
from sleeper.schema.model import Schema, schema_from_json
from sleeper.schema.type_text import type_text_to_json

_FIELD_LISTS = ("rowKeyFields", "sortKeyFields", "valueFields")
_SCHEMA_MEMBERS = (*_FIELD_LISTS, "latest")
_FIELD_MEMBERS = ("name", "type", "nullable", "default", "id", "document")


def parse_user_schema(text: str) -> Schema:
    """Parses schema JSON. InvalidRequestError names a wrong or unknown member."""
    try:
        schema = schema_from_json(text)
    except InvalidRequestError:
        _check_type_texts(text)
        raise
    raw = json.loads(text)
    _check_members("schema", raw, _SCHEMA_MEMBERS)
    for name in _FIELD_LISTS:
        for field in raw.get(name) or ():
            _check_members(f"schema: field {field['name']!r}", field, _FIELD_MEMBERS)
    return schema


def _check_type_texts(text: str) -> None:
    """Raises InvalidRequestError with the JSON of a type that has the form of command options."""
    with contextlib.suppress(ValueError, TypeError, AttributeError, LookupError):
        raw = json.loads(text)
        for field in (each for name in _FIELD_LISTS for each in raw.get(name) or ()):
            if isinstance(field["type"], str) and "(" in field["type"]:
                form = json.dumps(type_text_to_json(field["type"]))
                raise InvalidRequestError(
                    f"schema: field {field['name']!r}: type {field['type']!r} (expected {form})"
                )


def _check_members(what: str, raw: dict[str, Any], names: Collection[str]) -> None:
    for name in raw:
        if name not in names:
            near = did_you_mean(name, names)
            raise InvalidRequestError(
                f"{what}: unknown member {name!r} (expected {', '.join(names)}){near}"
            )
