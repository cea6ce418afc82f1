"""What changes of a schema did to its fields."""

from collections.abc import Iterable
from itertools import pairwise

from sleeper.schema.model import PrimitiveType, Schema


def find_unchecked_text(schema: Schema, older: Schema) -> str | None:
    """Returns the name of a field of `JSONType` that was text in the older schema; None if none.

    Rows of the older schema may have text in it that is not JSON.
    """
    text = {field.id for field in older.values if field.type is PrimitiveType.STRING}
    for field in schema.values:
        if field.type is PrimitiveType.JSON and field.id in text:
            return field.name
    return None


def describe_changes(schema: Schema, names: Iterable[str]) -> str:
    """Returns which transactions added, renamed or dropped fields of these names; may be empty.

    It is for errors about columns.
    """
    described = (_describe(schema, name) for name in names)
    return "; ".join(text for text in described if text)


def _describe(schema: Schema, name: str) -> str:
    for before, after in reversed(list(pairwise((*schema.earlier, schema)))):
        old = {field.id: field.name for field in before.fields}
        new = {field.id: field.name for field in after.fields}
        by = f"by transaction {after.version}"
        for field_id, each in new.items():
            if each == name != old.get(field_id):
                was = old.get(field_id)
                return f"field {name!r} was " + (
                    f"added {by}" if was is None else f"renamed from {was!r} {by}"
                )
        for field_id, each in old.items():
            if each == name != new.get(field_id):
                now = new.get(field_id)
                return f"field {name!r} was " + (
                    f"dropped {by}" if now is None else f"renamed to {now!r} {by}"
                )
    return ""
