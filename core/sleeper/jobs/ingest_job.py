"""Messages that name a table or its files, and ingest jobs.

Formats: docs/formats.md, "Message conventions" and "Ingest messages". Senders are not trusted, so
each member is validated before use.
"""

import json
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Protocol, TypeVar

from sleeper.errors import InvalidRequestError
from sleeper.jobs.queue import MESSAGE_BYTES_MAX
from sleeper.json_codec import (
    Conversion,
    JsonCodec,
    Member,
    MismatchError,
    camel_case,
)
from sleeper.json_members import check_selective_members
from sleeper.lenient_json import LenientText, OptionalText, parse_message_object, to_text
from sleeper.storage.source_options import DEFAULT_OPTIONS, SourceOptions

_ID_BYTES_MAX = 500
REQUESTERS = "askedBy"
"""The member with the callers on whose behalf a message was sent again."""


class TableMessage(Protocol):
    """A message that names its table."""

    @property
    def table_name(self) -> str | None: ...
    @property
    def table_id(self) -> str | None: ...


M = TypeVar("M", bound=TableMessage)


class MessageCodec(Generic[M]):
    """Converts messages to bodies and back. InvalidRequestError names an invalid member.

    A message's id replaces a missing `id_member`. If the `selective` members of a message that
    reads rows are given, others that would change the rows are errors.
    """

    def __init__(
        self, cls: type[M], what: str, id_member: str = "id", selective: Collection[str] = ()
    ) -> None:
        self._codec = JsonCodec(cls, camel_case)
        self._what = what
        self._id_member = id_member
        self._selective = selective

    def format(self, message: M) -> str:
        """Returns the message's body."""
        body = self._codec.format(message)
        self._check_size(body)
        return body

    def parse(self, body: str, message_id: str) -> M:
        """Returns the message. Ignores unknown members, except selective ones."""
        self._check_size(body)
        raw = parse_message_object(body, self._what)
        if raw.get(self._id_member) in (None, ""):
            raw[self._id_member] = message_id
        if self._selective:
            check_selective_members(raw, self._selective, self._what)
        message = self._codec.from_json(raw, self._what)
        if message.table_name is None and message.table_id is None:
            raise InvalidRequestError(f'{self._what}: "tableName" or "tableId" is missing')
        return message

    def _check_size(self, body: str) -> None:
        size = len(body.encode(errors="replace"))
        if size > MESSAGE_BYTES_MAX:
            raise InvalidRequestError(
                f"{self._what} has {size:,} bytes (expected at most {MESSAGE_BYTES_MAX:,}): "
                "send several messages, or a folder instead of its files"
            )


def add_id(body: str, member: str, message_id: str) -> str:
    """Returns the body with the message's id as that member, unless it has one.

    Sending a message again changes its id. A body that is not a JSON object is returned unchanged.
    """
    try:
        raw = parse_message_object(body, "message")
    except InvalidRequestError:
        return body
    if raw.get(member):
        return body
    return json.dumps({**raw, member: message_id}, separators=(",", ":"))


def add_requester(body: str, member: str, message_id: str, sender: str) -> str:
    """Returns the body of a message that `sender` sends again, as a message with another id.

    It keeps its id in that member, and its original requesters, whose restrictions still apply. A
    body that is not a message is returned unchanged.
    """
    try:
        raw = parse_message_object(body, "message")
    except InvalidRequestError:
        return body
    before = raw.get(REQUESTERS) or []
    if not isinstance(before, list):
        return body
    changes = {member: raw.get(member) or message_id, REQUESTERS: [sender, *before]}
    return json.dumps({**raw, **changes}, separators=(",", ":"))


def _to_id(raw: Any) -> str:
    text = to_text(raw)
    if len(text.encode()) > _ID_BYTES_MAX:
        raise MismatchError(raw, f"at most {_ID_BYTES_MAX} bytes")
    return text


MessageId = Annotated[str, Conversion(_to_id)]
"""An id that is short enough for a part of a key."""


@dataclass(frozen=True, slots=True)
class IngestJob:
    """An ingest of files, maybe none, into the table with `table_name` or `table_id`.

    `op_column` is the column of the rows' operations. `options` say how the files are read.
    """

    id: MessageId
    files: tuple[LenientText, ...]
    table_name: OptionalText = None
    table_id: OptionalText = None
    op_column: Annotated[OptionalText, Member(optional=True)] = None
    options: Annotated[SourceOptions, Member(optional=True)] = DEFAULT_OPTIONS

    @property
    def request(self) -> str:
        """The job's request, which a repetition of its id must equal."""
        files = sorted(self.files)
        more = {} if self.op_column is None else {"op": self.op_column}
        if self.options != DEFAULT_OPTIONS:
            more["options"] = _OPTIONS.format(self.options)
        return json.dumps({"files": files, **more} if more else files, separators=(",", ":"))


_OPTIONS = JsonCodec(SourceOptions, camel_case)
INGEST_JOBS = MessageCodec(IngestJob, "ingest message")


def new_job_id() -> str:
    """Returns a random id for a job without one."""
    return uuid.uuid4().hex
