"""Exports in the entries of a log."""

from collections.abc import Iterator
from dataclasses import dataclass

from sleeper.export_queue.transactions import ExportRows, QueueExports
from sleeper.statestore.log import LogEntry
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.codec import decode_line

# Exports of entries that are in memory at once. An entry may have megabytes of them.
_ENTRIES_PER_STEP = 1_000
_BYTES_PER_STEP = 8 * 1024**2
_ENTRIES_PER_READ = 20
_MARK = f'"kind":"{ExportRows.kind}"'


@dataclass(frozen=True, slots=True)
class LoggedExport:
    """What one transaction exported to queues, under its number."""

    number: int
    queues: tuple[QueueExports, ...]


@dataclass(frozen=True, slots=True)
class LoggedExports:
    """The exports of entries up to `end`, the last number of an entry, in order."""

    end: int
    exports: tuple[LoggedExport, ...]


def read_exports(store: StateStore, after: int) -> LoggedExports:
    """Returns exports that transactions after a number attached, from some entries of the log.

    `after` is the end of an entry. NotFoundError if the log no longer has them.
    """
    found: list[LoggedExport] = []
    end, entries, size = after, 0, 0
    while entries < _ENTRIES_PER_STEP and size < _BYTES_PER_STEP:
        page = store.read_entries(end, _ENTRIES_PER_READ)
        for entry in page:
            found += _exports_of_entry(entry)
            end, size = entry.last_number, size + len(entry.body)
        entries += len(page)
        if len(page) < _ENTRIES_PER_READ:
            break
    return LoggedExports(end, tuple(found))


def _exports_of_entry(entry: LogEntry) -> Iterator[LoggedExport]:
    """Yields what each transaction of the entry exported. Others are not decoded."""
    if _MARK not in entry.body:
        return
    for number, line in enumerate(entry.body.split("\n"), entry.first_number):
        if not line.startswith("{" + _MARK):
            continue
        transaction = decode_line(line).transaction
        assert isinstance(transaction, ExportRows)
        yield LoggedExport(number, transaction.queues)
