"""The JSON schema of members of request bodies that select rows: keys, ranges and regions."""

from sleeper.serve.endpoint import OBJECT, Json, list_schema

_KEY_VALUE: Json = {"type": ["string", "integer"], "description": "bytes as base64"}
_RANGE_END: Json = {"type": ["string", "integer", "null"]}

REGION_MEMBERS: Json = {
    "keys": list_schema(
        {"oneOf": [_KEY_VALUE, list_schema(_KEY_VALUE)]},
        "Lists with a value for each row key field; a single value needs no list.",
    ),
    "ranges": list_schema(
        {"type": "array", "items": _RANGE_END, "minItems": 2, "maxItems": 2},
        "[min, max] of the first row key field, max exclusive; null for an open end.",
    ),
    "regions": list_schema(
        OBJECT,
        "Ranges by row key field, as in query messages; strings are base64 unless "
        "stringsBase64Encoded is false.",
    ),
}
