"""The results of requests that add rows, and the ids under which the state remembers them."""

from dataclasses import dataclass

from sleeper.errors import ConflictError, InvalidRequestError
from sleeper.statestore.fold import AppliedId
from sleeper.statestore.store import StateStore

_ID_CHARACTERS_MAX = 200
_ROWS_BYTES = 8


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a write: its rows, and the number of the transaction that added them.

    `id` is None if the request had none. `already_done` is true if an earlier request with the
    id added the rows.
    """

    id: str | None
    rows: int
    number: int
    already_done: bool = False


def check_request_id(request_id: str) -> None:
    """Raises InvalidRequestError unless the text can be the id of a request."""
    is_printable = request_id.isascii() and request_id.isprintable()
    if not request_id or len(request_id) > _ID_CHARACTERS_MAX or not is_printable:
        raise InvalidRequestError(
            f"invalid id of a request: {request_id!r:.250} (expected 1 to {_ID_CHARACTERS_MAX} "
            "printable ASCII characters)"
        )


def pack_content(digest: bytes, rows: int) -> bytes:
    """Returns what the state remembers of a request: a fingerprint, then the number of rows."""
    return digest + rows.to_bytes(_ROWS_BYTES)


def repeat_result(request_id: str, digest: bytes, earlier: AppliedId) -> WriteResult:
    """Returns the result of an earlier request. ConflictError if its content was another one."""
    content = earlier.fingerprint
    if content[:-_ROWS_BYTES] != digest:
        raise ConflictError(
            f"request id {request_id!r} was used by transaction {earlier.number} for other rows "
            "(expected a new id)"
        )
    rows = int.from_bytes(content[-_ROWS_BYTES:])
    return WriteResult(request_id, rows, earlier.number, already_done=True)


def find_request(state: StateStore, request_id: str) -> AppliedId | None:
    """Returns the commit of the request, None if there was none in 30 days."""
    with state.reading() as now:
        return now.jobs.requests([request_id]).get(request_id)
