"""Models of the clients that read WebSocket frames (docs/formats.md, "WebSocket frames").

Both take one frame at a time and ignore what comes after their end. They differ in when that is.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Frame = dict[str, Any]
_KINDS = {"subqueries", "rows", "completed", "error"}


@dataclass
class PythonClient:
    """Stops at the first `completed` frame, whatever its id, or at an `error`."""

    query_id: str
    rows: list[Any] = field(default_factory=list)
    error: str | None = None
    is_finished: bool = False

    def take(self, frame: Frame) -> None:
        if self.is_finished:
            return
        assert frame["message"] in _KINDS, frame
        if frame["message"] == "rows":
            self.rows += frame["rows"]
        self.error = frame.get("error")
        self.is_finished = frame["message"] in {"completed", "error"}


@dataclass
class JavaClient:
    """Ends when every id that it waits for is completed, or at an `error`.

    It waits for its query's own id until a `subqueries` frame names others. Rows count under
    one of these ids.
    """

    query_id: str
    error: str | None = None
    _waiting: set[str] = field(default_factory=set)
    _ids: list[str] = field(default_factory=list)
    _rows: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._waiting = {self.query_id}
        self._ids = [self.query_id]

    @property
    def is_finished(self) -> bool:
        return self.error is not None or not self._waiting

    @property
    def rows(self) -> list[Any]:
        return [
            row for query_id in dict.fromkeys(self._ids) for row in self._rows.get(query_id, [])
        ]

    def take(self, frame: Frame) -> None:
        if self.is_finished:
            return
        match frame["message"]:
            case "subqueries":
                self._waiting.update(frame["queryIds"])
                self._waiting.discard(frame["queryId"])
                self._ids += frame["queryIds"]
            case "rows":
                self._rows.setdefault(frame["queryId"], []).extend(frame["rows"])
            case "completed":
                assert isinstance(frame["rowCount"], int)
                assert isinstance(frame["locations"], list)
                self._waiting.discard(frame["queryId"])
            case "error":
                self.error = frame["error"]
            case other:
                raise AssertionError(f"the client does not know {other!r}")


Client = PythonClient | JavaClient


def clients_after(frames: Iterable[Frame], query_id: str) -> list[Client]:
    """Returns one client of each kind that sent the query and received these frames."""
    clients: list[Client] = [PythonClient(query_id), JavaClient(query_id)]
    for frame in frames:
        for client in clients:
            client.take(frame)
    return clients
