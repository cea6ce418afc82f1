"""Ids, names and references of tables."""

import re
import secrets
from dataclasses import dataclass
from enum import Enum
from typing import NewType

from sleeper.errors import InvalidRequestError

TableId = NewType("TableId", str)
"""Eight lower-case hexadecimal digits."""

TABLE_NAME_LENGTH_MAX = 200


class TableState(Enum):
    """Whether a table is active, or waits for garbage collection to delete it."""

    ACTIVE = "active"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class TableRef:
    """A row of the table index. Offline tables are not split or compacted."""

    id: TableId
    name: str
    online: bool = True
    state: TableState = TableState.ACTIVE


def new_table_id() -> TableId:
    """Returns a new random id. The index rejects duplicates."""
    return TableId(secrets.token_hex(4))


def is_table_id(text: str) -> bool:
    """Returns whether the text is a valid id."""
    return re.fullmatch("[0-9a-f]{8}", text) is not None


def check_table_name(name: str) -> str:
    """Returns the name. InvalidRequestError if it is invalid.

    Paths, SQL and JSON contain names, so slashes, control characters, and leading or trailing
    white space are invalid.
    """
    if not name or len(name) > TABLE_NAME_LENGTH_MAX:
        raise InvalidRequestError(
            f"table name {name[:40]!r} has {len(name)} characters: "
            f"1 to {TABLE_NAME_LENGTH_MAX} are allowed"
        )
    if name != name.strip() or name in {".", ".."}:
        raise InvalidRequestError(
            f"table name {name!r} is a dot name or begins or ends with white space"
        )
    for character in name:
        if character in '/\\"' or not character.isprintable():
            raise InvalidRequestError(
                f"table name {name!r} has {character!r}: slashes, double quotes and control "
                "characters are not allowed"
            )
    return name
