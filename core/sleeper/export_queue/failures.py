"""Failures of exporters: their kinds, their texts and the time of the next call.

An unavailable receiver, and a call that does not return, are retried without limit. Every other
error is a refusal.
"""

import random
from typing import TYPE_CHECKING

from sleeper.errors import SleeperError, UnavailableError, is_transient
from sleeper.export_queue.definition import SEQUENCE, ExportQueue
from sleeper.export_queue.store import BucketStatus

if TYPE_CHECKING:
    import pyarrow as pa

_FIRST_SECONDS = 1.0
_SECONDS_MAX = 60.0
_TEXT_LENGTH_MAX = 2_000
_UNAVAILABLE = "receiver unavailable: "


class HungCallError(SleeperError):
    """The exporter did not return in time. Its thread may run on for ever."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the exporter did not return within {seconds:g} s")


def is_unavailable(error: BaseException) -> bool:
    """Returns whether the error means that the receiver is unavailable, for any exports."""
    if isinstance(error, (UnavailableError, ConnectionError, TimeoutError)):
        return True
    # For example a full disk.
    return isinstance(error, OSError) and is_transient(error)


def is_refusal(error: BaseException) -> bool:
    """Returns whether the receiver refused the exports."""
    return not is_unavailable(error) and not isinstance(error, HungCallError)


def describe_failure(error: BaseException) -> str:
    """Returns the error as text of limited length. Errors of other code have their type."""
    text = str(error) if isinstance(error, SleeperError) else f"{type(error).__name__}: {error}"
    if is_unavailable(error):
        text = f"{_UNAVAILABLE}{text}"
    return shorten(text)


def shorten(text: str) -> str:
    """Returns the beginning of a long text."""
    return text if len(text) <= _TEXT_LENGTH_MAX else f"{text[:_TEXT_LENGTH_MAX]}..."


def describe_bucket(queue: ExportQueue, bucket: int, rows: "pa.RecordBatch | None" = None) -> str:
    """Returns the queue, the bucket and the sequence numbers of the rows, for error messages."""
    where = f"export queue {queue.name!r}, bucket {bucket}"
    if rows is None or rows.num_rows == 0:
        return where
    numbers = rows.column(SEQUENCE).to_numpy()
    first, last = numbers.min(), numbers.max()
    sequences = f"sequence {first}" if first == last else f"sequences {first} to {last}"
    return f"{where}, {sequences}"


def ends_by_itself(status: BucketStatus) -> bool:
    """Returns whether the bucket becomes empty without a change of the receiver.

    A bucket whose exports were refused does, because they become dead letters.
    """
    return status.failures == 0 or status.was_refused


def backoff_seconds(failures: int) -> float:
    """Returns the wait after so many failures: 1 s, doubling to 60 s, with jitter."""
    seconds = min(_FIRST_SECONDS * 2.0 ** min(failures - 1, 16), _SECONDS_MAX)
    return seconds * random.uniform(0.5, 1)
