"""The schema JSON of a user. Members that a schema does not have are errors: they may be misspelt.

Schemas in logs and files may have members of a later version, which `schema_from_json` ignores.
"""

import json
from collections.abc import Collection
from typing import Any

from sleeper.errors import InvalidRequestError, did_you_mean
from sleeper.schema.model import Schema, schema_from_json

_FIELD_LISTS = ("rowKeyFields", "sortKeyFields", "valueFields")
_SCHEMA_MEMBERS = (*_FIELD_LISTS, "latest")
_FIELD_MEMBERS = ("name", "type", "nullable", "default", "id")


def parse_user_schema(text: str) -> Schema:
    """Parses schema JSON. InvalidRequestError names a wrong or unknown member."""
    schema = schema_from_json(text)
    raw = json.loads(text)
    _check_members("schema", raw, _SCHEMA_MEMBERS)
    for name in _FIELD_LISTS:
        for field in raw.get(name) or ():
            _check_members(f"schema: field {field['name']!r}", field, _FIELD_MEMBERS)
    return schema


def _check_members(what: str, raw: dict[str, Any], known: Collection[str]) -> None:
    for name in raw:
        if name not in known:
            near = did_you_mean(name, known)
            raise InvalidRequestError(
                f"{what}: unknown member {name!r} (expected {', '.join(known)}){near}"
            )
