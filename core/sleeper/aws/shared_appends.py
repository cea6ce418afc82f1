"""Appends to the logs of several tables in one DynamoDB transaction.

A thread may start several appends before it waits for one. While one request is under way, other
appends wait, and the next request takes them all. A request waits for the appends that threads have
announced, for a short time. An append whose condition failed fails alone. If DynamoDB refuses a
shared transaction, each append is sent again on its own, so that no table fails because of another.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sleeper.aws.dynamo import TRANSACTION_WRITES_MAX, DynamoItems, Write
from sleeper.aws.errors import RefusedError, ThrottledError
from sleeper.errors import ConflictError, InvalidRequestError, SleeperError, UnavailableError

# About the time of two requests, which a thread makes before its append if its state is stale.
_GATHERING_SECONDS_MAX = 0.02
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
        self._announced = 0
        # Of `_waiting` and `_announced`, notified when all announced appends wait.
        self._complete = threading.Condition()

    @contextmanager
    def announced(self, threads: int) -> Iterator[Callable[[], None]]:
        """Announces appends of so many threads, which share requests if they come together.

        Yields a function that each thread calls once when it will append nothing more.
        """
        remaining = 0

        def add(count: int) -> None:
            nonlocal remaining
            with self._complete:
                remaining += count
                self._announced += count
                self._notify_if_complete()

        add(threads)
        try:
            yield lambda: add(-1)
        finally:
            add(-remaining)

    def append(self, writes: Sequence[Write], token: str, size_bytes: int) -> None:
        """Applies all of the writes or none. Errors as of `DynamoItems.transact`.

        DynamoDB applies the `token` once in ten minutes, unless the transaction was shared.
        """
        self.start(writes, token, size_bytes)()

    def start(self, writes: Sequence[Write], token: str, size_bytes: int) -> Callable[[], None]:
        """Returns a function that applies the writes as `append` does.

        The first call of one applies the writes of all that were started before it.
        """
        append = _Append(writes, token, size_bytes)
        with self._complete:
            self._waiting.append(append)
            self._notify_if_complete()
        return lambda: self._finish(append)

    def _finish(self, append: _Append) -> None:
        with self._sending:
            while not append.done:
                self._send_waiting()
        if append.goes_alone:
            self._items.transact(append.writes, append.token)
        elif append.error is not None:
            raise append.error

    def _is_complete(self) -> bool:
        return len(self._waiting) >= self._announced

    def _notify_if_complete(self) -> None:
        if self._is_complete():
            self._complete.notify()

    def _send_waiting(self) -> None:
        with self._complete:
            self._complete.wait_for(self._is_complete, _GATHERING_SECONDS_MAX)
        group = [self._waiting.popleft()]
        writes, size_bytes = len(group[0].writes), group[0].size_bytes
        while self._waiting:
            writes += len(self._waiting[0].writes)
            size_bytes += self._waiting[0].size_bytes
            if writes > TRANSACTION_WRITES_MAX or size_bytes > _BYTES_MAX:
                break
            group.append(self._waiting.popleft())
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
