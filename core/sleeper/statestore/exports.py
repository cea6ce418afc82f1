"""Exports in the entries of a log."""

from collections.abc import Iterator
from dataclasses import dataclass

from sleeper.statestore.log import LogEntry
from sleeper.statestore.transactions.codec import decode_line
from sleeper.statestore.transactions.export_queues import ExportRows, QueueExports

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


def exports_of_entry(entry: LogEntry) -> Iterator[LoggedExport]:
    """Yields what each transaction of the entry exported. Others are not decoded."""
    if _MARK not in entry.body:
        return
    for number, line in enumerate(entry.body.split("\n"), entry.first_number):
        if not line.startswith("{" + _MARK):
            continue
        transaction = decode_line(line).transaction
        assert isinstance(transaction, ExportRows)
        yield LoggedExport(number, transaction.queues)
