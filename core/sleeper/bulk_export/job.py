"""A bulk export and its message (docs/formats.md, "Bulk export messages")."""

import json
import re
import uuid
from dataclasses import dataclass

from sleeper.errors import InvalidRequestError
from sleeper.jobs.files_message import optional_text, parse_object

_WHAT = "bulk export message"
# The id is also a folder's name.
_EXPORT_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class BulkExportJob:
    """The export of a table, given by `table_name` or `table_id`, under an id."""

    id: str
    table_name: str | None = None
    table_id: str | None = None

    def to_message(self) -> str:
        """Returns the message's body."""
        raw = {"exportId": self.id}
        if self.table_name is not None:
            raw["tableName"] = self.table_name
        if self.table_id is not None:
            raw["tableId"] = self.table_id
        return json.dumps(raw, separators=(",", ":"))


def new_export_id() -> str:
    """Returns a new id for an export without one."""
    return uuid.uuid4().hex


def check_export_id(export_id: str) -> str:
    """Returns the id. InvalidRequestError if it is not a valid folder name."""
    if not _EXPORT_ID.fullmatch(export_id):
        raise InvalidRequestError(
            f"export id {export_id[:200]!r}: expected at most 128 letters, digits, '-', '_' or '.'"
        )
    return export_id


def parse_bulk_export_job(body: str, message_id: str) -> BulkExportJob:
    """Parses a message. The default export id is the message's id; ignores unknown members.

    InvalidRequestError names the invalid member.
    """
    raw = parse_object(body, _WHAT)
    export_id, table_name, table_id = (
        optional_text(raw, member, _WHAT) for member in ("exportId", "tableName", "tableId")
    )
    if table_name is None and table_id is None:
        raise InvalidRequestError(f'{_WHAT}: "tableName" or "tableId" is missing')
    return BulkExportJob(check_export_id(export_id or message_id), table_name, table_id)
