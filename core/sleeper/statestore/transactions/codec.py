"""Transactions as lines of JSON in the log."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from sleeper.errors import DataError, InvalidRequestError
from sleeper.json_codec import JsonCodec
from sleeper.statestore.log import ENTRY_FORMAT_VERSION, LogEntry
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.statestore.transactions.change_schema import ChangeSchema
from sleeper.statestore.transactions.check_unchanged import CheckUnchanged
from sleeper.statestore.transactions.collection import (
    BarRuns,
    CollectFiles,
    FilesCollected,
    RaiseHorizon,
)
from sleeper.statestore.transactions.compaction_jobs import (
    AssignFiles,
    CommitCompaction,
    ReleaseJobs,
    RenewLeases,
    ShortenLeases,
)
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.holds import (
    CreateFollower,
    CreateHold,
    DeleteFollower,
    ReleaseHold,
    RenewHold,
)
from sleeper.statestore.transactions.partition_split import (
    MarkUnsplittable,
    PushDownReferences,
    SplitPartition,
)
from sleeper.statestore.transactions.pins import PinFiles, UnpinFiles
from sleeper.statestore.transactions.record_requests import RecordRequests
from sleeper.statestore.transactions.restore import ReinitialiseTable, RestoreVersion, UndoJob
from sleeper.statestore.transactions.snapshot_loads import (
    BeginLoad,
    ExpireSnapshots,
    PublishSnapshot,
)
from sleeper.statestore.transactions.table_definition import (
    AcceptTime,
    ChangeProcessing,
    InitialiseTable,
)
from sleeper.statestore.transactions.transaction import Subject, Transaction
from sleeper.systems import load, systems

KINDS: dict[str, type[Transaction]] = {
    t.kind: t
    for t in (
        InitialiseTable,
        AddFiles,
        PushDownReferences,
        AssignFiles,
        RenewLeases,
        ReleaseJobs,
        ShortenLeases,
        CommitCompaction,
        SplitPartition,
        MarkUnsplittable,
        RaiseHorizon,
        CollectFiles,
        FilesCollected,
        CreateHold,
        RenewHold,
        ReleaseHold,
        CreateFollower,
        DeleteFollower,
        ChangeProcessing,
        BarRuns,
        AcceptTime,
        DeleteRows,
        RestoreVersion,
        UndoJob,
        ReinitialiseTable,
        ChangeSchema,
        PinFiles,
        UnpinFiles,
        BeginLoad,
        PublishSnapshot,
        ExpireSnapshots,
        CheckUnchanged,
        RecordRequests,
        *(load(each) for system in systems() for each in system.transactions),
    )
}

_CODECS = {kind: JsonCodec(t) for kind, t in KINDS.items()}
_FINGERPRINT_BYTES = 12


@cache
def kinds_of(subject: Subject) -> frozenset[str]:
    """Returns the kinds of transactions that change the subject."""
    return frozenset(kind for kind, each in KINDS.items() if each.subject is subject)


@dataclass(frozen=True, slots=True)
class EncodedTransaction:
    """A transaction with its line in the log and a fingerprint of its content."""

    transaction: Transaction
    line: str
    fingerprint: bytes


def encode(transaction: Transaction) -> EncodedTransaction:
    """Returns the transaction with its line for the log."""
    raw = {
        "kind": transaction.kind,
        "version": transaction.json_version,
        "id": transaction.id,
        **_CODECS[transaction.kind].to_json(transaction),
    }
    line = json.dumps(raw, separators=(",", ":"))
    return EncodedTransaction(transaction, line, _fingerprint(transaction, line))


def decode_entry(entry: LogEntry) -> Sequence[EncodedTransaction]:
    """Returns the transactions of an entry. DataError if a newer version wrote it."""
    if entry.format_version > ENTRY_FORMAT_VERSION:
        raise DataError(
            f"log entry {entry.first_number} has format {entry.format_version}: it was written by "
            f"a newer version, this one reads up to {ENTRY_FORMAT_VERSION}"
        )
    lines = entry.body.split("\n")
    if len(lines) != entry.last_number - entry.first_number + 1:
        raise DataError(
            f"log entry {entry.first_number} to {entry.last_number} holds {len(lines)} transactions"
        )
    return [_decode_logged(line, entry.first_number + i) for i, line in enumerate(lines)]


def decode_line(line: str) -> EncodedTransaction:
    """Returns the transaction of a message. InvalidRequestError if the line is none.

    DataError if a newer version wrote it.
    """
    try:
        raw = json.loads(line)
        kind, version, _ = raw["kind"], raw["version"], raw["id"]
        is_known = kind in KINDS and version <= KINDS[kind].json_version
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRequestError(f"transaction cannot be read: {error!r}") from error
    if not is_known:
        raise DataError(f"transaction {kind!r} of version {version} is from a newer version")
    transaction = _CODECS[kind].from_json(raw, f"transaction {kind!r}")
    return EncodedTransaction(transaction, line, _fingerprint(transaction, line))


def _decode_logged(line: str, number: int) -> EncodedTransaction:
    try:
        return decode_line(line)
    except (DataError, InvalidRequestError) as error:
        raise DataError(f"transaction {number} cannot be read: {error}") from error


def hash_request(request: str) -> bytes:
    """Returns the fingerprint of the request of an ingest or delete."""
    return hashlib.blake2b(request.encode(), digest_size=_FINGERPRINT_BYTES).digest()


def _fingerprint(transaction: Transaction, line: str) -> bytes:
    if isinstance(transaction, AddFiles | DeleteRows) and transaction.request is not None:
        line = transaction.request
    return hash_request(line)
