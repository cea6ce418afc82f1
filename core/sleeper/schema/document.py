"""The field of a table that is its document."""

from dataclasses import replace

from sleeper.errors import InvalidRequestError
from sleeper.schema.model import Schema

OWN_MEMBERS = (
    *("~id", "~table", "~version", "~signature", "~deleted"),
    *("~firstUpdateAt", "~lastUpdateAt"),
)
"""The members that a copy of a document has beside those of the row: they describe the copy."""

DOUBLED_NAME = rf"^~+({'|'.join(OWN_MEMBERS)})$"
"""Names that stand in copies for names of a document with one `~` less."""


def with_document(schema: Schema, name: str | None) -> Schema:
    """Returns the schema, of which the named field is the document; the same without a name.

    InvalidRequestError if there is no such value field of `JSONType`.
    """
    if name is None:
        return schema
    field = schema.field(name)
    if field not in schema.values:
        raise InvalidRequestError(f"field {name!r} cannot be the document: it is a key field")
    values = tuple(replace(each, document=each == field) for each in schema.values)
    return replace(schema, values=values)
