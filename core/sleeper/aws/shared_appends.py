"""Appends to the logs of several tables in one DynamoDB transaction.

While one request is under way, the appends of other threads wait, and the next request takes them
all. An append whose condition failed fails alone. If DynamoDB refuses a shared transaction, each of
the other threads sends its own append, so that no table fails because of another.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from sleeper.aws.dynamo import TRANSACTION_WRITES_MAX, DynamoItems, Write
from sleeper.aws.errors import RefusedError, ThrottledError
from sleeper.errors import ConflictError, InvalidRequestError, SleeperError, UnavailableError

# A fraction of the time that a request takes.
_GATHERING_SECONDS = 0.003
# DynamoDB takes 4 MB in one transaction.
_BYTES_MAX = 3 * 1024**2


@dataclass(slots=True)
class _Append:
    """The writes of one append. It `goes_alone` after a shared transaction was refused."""

    writes: Sequence[Write]
    token: str
    size_bytes: int
    error: SleeperError | None = None
    goes_alone: bool = False
    done: bool = False

    def settle(self, error: SleeperError | None = None) -> None:
        self.error = error
        self.done = True

    def leave(self) -> None:
        self.goes_alone = self.done = True


class SharedAppends:
    """Sends the appends of all threads to one DynamoDB table of logs."""

    def __init__(self, items: DynamoItems) -> None:
        self._items = items
        self._waiting: deque[_Append] = deque()
        self._sending = threading.Lock()
        # Whether the last request had the appends of several threads.
        self._is_busy = False

    def append(self, writes: Sequence[Write], token: str, size_bytes: int) -> None:
        """Applies all of the writes or none. Errors as of `DynamoItems.transact`.

        DynamoDB applies the `token` once in ten minutes, unless the transaction was shared.
        """
        append = _Append(writes, token, size_bytes)
        self._waiting.append(append)
        with self._sending:
            while not append.done:
                self._send_waiting()
        if append.goes_alone:
            self._items.transact(writes, token)
        elif append.error is not None:
            raise append.error

    def _send_waiting(self) -> None:
        if self._is_busy:
            time.sleep(_GATHERING_SECONDS)
        group = [self._waiting.popleft()]
        writes, size_bytes = len(group[0].writes), group[0].size_bytes
        while self._waiting:
            writes += len(self._waiting[0].writes)
            size_bytes += self._waiting[0].size_bytes
            if writes > TRANSACTION_WRITES_MAX or size_bytes > _BYTES_MAX:
                break
            group.append(self._waiting.popleft())
        self._is_busy = len(group) > 1
        try:
            self._send(group)
        finally:
            # An interrupt of this thread must not block the others.
            for append in group:
                if not append.done:
                    append.settle(UnavailableError("the thread that was sending was interrupted"))

    def _send(self, group: Sequence[_Append]) -> None:
        writes = [write for append in group for write in append.writes]
        try:
            self._items.transact_once(writes, group[0].token if len(group) == 1 else None)
        except RefusedError as error:
            _settle_refused(group, error)
        except (ConflictError, InvalidRequestError, ThrottledError):
            for append in group:
                append.leave()
        except SleeperError as error:
            for append in group:
                append.settle(error)
        else:
            for append in group:
                append.settle()


def _settle_refused(group: Sequence[_Append], error: RefusedError) -> None:
    """Fails the appends with a failed condition. The others leave the group."""
    first = 0
    for append in group:
        end = first + len(append.writes)
        own = tuple(item - first for item in error.items if first <= item < end)
        first = end
        if own:
            append.settle(RefusedError(str(error), own))
        else:
            append.leave()
