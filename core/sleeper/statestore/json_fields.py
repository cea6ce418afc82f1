"""Fields of text that became JSON: rows of older schemas may have text that is not JSON."""

from sleeper.schema.history import find_unchecked_text
from sleeper.schema.model import schema_from_json
from sleeper.statestore.fold import Fold

_NEWEST = "SELECT version, json FROM schema_versions ORDER BY version DESC LIMIT 1"
_AT = "SELECT json FROM schema_versions WHERE version <= ? ORDER BY version DESC LIMIT 1"


def find_text_fault(fold: Fold, version: int) -> str | None:
    """Returns why rows of the schema of a version cannot be added to the table; None if they can.

    Nobody has checked that their text is JSON.
    """
    newest, text = fold.row(_NEWEST)
    older = fold.row(_AT, (version,))
    if version >= newest or older is None:
        return None
    name = find_unchecked_text(schema_from_json(text), schema_from_json(older[0]))
    if name is None:
        return None
    return f"field {name!r} has become JSON, and the text of older rows is not checked"
