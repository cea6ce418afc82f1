"""What changes of a schema did to a field name, for errors about columns."""

from collections.abc import Iterable
from itertools import pairwise

from sleeper.schema.model import Schema


def describe_changes(schema: Schema, names: Iterable[str]) -> str:
    """Returns which transactions added, renamed or dropped fields of these names; may be empty."""
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
