"""What names a table."""

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
    """Whether a table is in use, or waits for collection to finish its deletion."""

    ACTIVE = "active"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class TableRef:
    """A table as the index knows it. Offline tables are not split or compacted."""

    id: TableId
    name: str
    online: bool = True
    state: TableState = TableState.ACTIVE


def new_table_id() -> TableId:
    """A fresh random id. The index refuses one that is taken."""
    return TableId(secrets.token_hex(4))


def is_table_id(text: str) -> bool:
    """Whether an id can be this."""
    return re.fullmatch("[0-9a-f]{8}", text) is not None


def check_table_name(name: str) -> str:
    """The name if it can be one; otherwise InvalidRequestError says what is wrong with it.

    Names go into paths on users' disks, SQL and JSON, so no slashes, control
    characters, or white space at either end.
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
