"""Models: the JSON objects of requests and responses, with their schemas in the OpenAPI document.

The model of a response is derived from a dataclass, whose fields are the members that are encoded.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, make_dataclass
from functools import reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from sleeper.json_codec import JsonCodec, Member, camel_case
from sleeper.reports.output import Column, ColumnKind

Json = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]
"""Rows of a listing."""

TEXT: Json = {"type": "string"}
FLAG: Json = {"type": "boolean"}
COUNT: Json = {"type": "integer", "minimum": 0}
POSITIVE: Json = {"type": "integer", "minimum": 1}
OBJECT: Json = {"type": "object"}
OPTIONAL = Member(optional=True)
_SCALARS = {str: TEXT, bool: FLAG, int: COUNT}
_COUNTS = {ColumnKind.COUNT, ColumnKind.BYTES}


class Schema:
    """Marks a field with members of its JSON schema that its type does not imply."""

    def __init__(self, description: str | None = None, **members: Any) -> None:
        self.members = members if description is None else {"description": description, **members}


@dataclass(frozen=True, slots=True)
class Model:
    """A JSON object in a request or response: its name and JSON schema in the OpenAPI document."""

    name: str
    schema: Json

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the declared members."""
        return tuple(self.schema["properties"])

    @property
    def is_closed(self) -> bool:
        """Whether other members are errors."""
        return "additionalProperties" in self.schema


@dataclass(frozen=True, slots=True)
class ResponseModel(Model):
    """A model of responses, whose members are attributes of an object."""

    codec: JsonCodec[Any]


def response_model(cls: Any) -> ResponseModel:
    """Returns the model of a dataclass. Its codec reads the fields of any object that has them."""
    kind = getattr(cls, "__origin__", cls)
    return ResponseModel(kind.__name__, schema_of(cls), JsonCodec(kind, camel_case))


def model_of(cls: type, name: str, fields: str, **marks: Schema) -> ResponseModel:
    """Returns the model of some fields of a dataclass, named with spaces between them."""
    hints = get_type_hints(cls)
    members = [(each, Annotated[hints[each], marks.get(each, Schema())]) for each in fields.split()]
    return response_model(make_dataclass(name, members))


def request_model(name: str, required: Json, optional: Json) -> Model:
    """Returns a model of requests. Other members are errors."""
    return Model(name, {**object_schema(required, optional), "additionalProperties": False})


def object_schema(required: Json, optional: Json) -> Json:
    """Returns the JSON schema of an object with these members."""
    names = {"required": list(required)} if required else {}
    return {**OBJECT, **names, "properties": {**required, **optional}}


def list_schema(items: Json, description: str | None = None) -> Json:
    """Returns the JSON schema of a list."""
    return {"type": "array", "items": items, **Schema(description).members}


def rows_of(
    columns: Iterable[Column],
    optional: Sequence[str] = (),
    description: str | None = None,
    **more: Schema,
) -> Schema:
    """Returns the schema of rows with these columns. The optional ones may be null."""
    members: Json = {}
    for each in columns:
        schema = COUNT if each.kind in _COUNTS else TEXT
        nullable = {"type": [schema["type"], "null"]} if each.name in optional else {}
        members[each.name] = {**schema, **nullable, **more.get(each.name, Schema()).members}
    return Schema(description, items=object_schema(members, {}))


def schema_of(hint: Any) -> Json:
    """Returns the JSON schema of a type, as `sleeper.json_codec` encodes it."""
    hint = getattr(hint, "__supertype__", hint)  # that of a NewType
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        marks = (each.members for each in hint.__metadata__ if isinstance(each, Schema))
        return reduce(or_, marks, schema_of(hint.__origin__))
    if origin in (Union, UnionType):
        schema = schema_of(arguments[0])
        return {**schema, "type": [schema["type"], "null"]}
    if origin in (Sequence, tuple):
        return list_schema(schema_of(arguments[0]))
    if origin is Mapping:
        return {**OBJECT, **({"additionalProperties": TEXT} if arguments[1] is str else {})}
    return _schema_of_fields(hint) if is_dataclass(hint) else _SCALARS[hint]


def _schema_of_fields(cls: Any) -> Json:
    members: tuple[Json, Json] = ({}, {})
    for name, hint in get_type_hints(cls, include_extras=True).items():
        schema = schema_of(hint)
        is_optional = OPTIONAL in getattr(hint, "__metadata__", ())
        if is_optional:  # left out, never null
            schema = {**schema, "type": schema["type"][0]}
        members[is_optional][camel_case(name)] = schema
    return object_schema(*members)
