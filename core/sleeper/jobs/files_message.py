"""What messages that name files of a table have in common (FORMATS: Messages).

Whoever sends them may be anybody, so each member is checked before it goes anywhere.
"""

from dataclasses import dataclass

from sleeper.errors import InvalidRequestError
from sleeper.jobs.message_text import optional_text, parse_object, text_of
from sleeper.jobs.queue import MESSAGE_BYTES_MAX


@dataclass(frozen=True, slots=True)
class FilesMessage:
    """Files, maybe none, for a table that is named by its name or its id.

    `id` is the job's, or another that the message is known by.
    """

    files: tuple[str, ...]
    table_name: str | None
    table_id: str | None
    id: str | None


def parse_files_message(body: str, what: str, id_member: str = "id") -> FilesMessage:
    """Parses a message that is called `what`. Unknown members are ignored.

    InvalidRequestError says which member is wrong.
    """
    check_message_size(body, what)
    raw = parse_object(body, what)
    files = raw.get("files")
    if not isinstance(files, list):
        raise InvalidRequestError(f'{what}: "files" must be a list of paths')
    name, table_id = (optional_text(raw, member, what) for member in ("tableName", "tableId"))
    if name is None and table_id is None:
        raise InvalidRequestError(f'{what}: "tableName" or "tableId" is missing')
    paths = tuple(text_of(file, f"{what}: a path") for file in files)
    return FilesMessage(paths, name, table_id, optional_text(raw, id_member, what))


def check_message_size(body: str, what: str) -> None:
    """InvalidRequestError if no queue takes it."""
    size = len(body.encode(errors="replace"))
    if size > MESSAGE_BYTES_MAX:
        raise InvalidRequestError(
            f"{what} of {size:,} bytes is over the limit of {MESSAGE_BYTES_MAX:,}: "
            "send several, or a folder instead of its files"
        )
