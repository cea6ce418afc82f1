"""Application of transactions and log entries to a fold."""

from sleeper.errors import DataError, InvalidRequestError, NotFoundError
from sleeper.statestore.fold import Fold
from sleeper.statestore.log import LogEntry, TransactionLog
from sleeper.statestore.transactions.codec import EncodedTransaction, decode_entry
from sleeper.statestore.transactions.transaction import (
    Outcome,
    Status,
    Verdict,
    already_done,
    refused,
)

_ENTRIES_PER_READ = 100


def catch_up(fold: Fold, log: TransactionLog) -> None:
    """Applies every entry after the fold's number.

    NotFoundError if some were trimmed, or if the fold is of another history than the log.
    """
    while entries := log.read(fold.number, _ENTRIES_PER_READ):
        for entry in entries:
            apply_entry(fold, entry)


def apply_entry(fold: Fold, entry: LogEntry) -> None:
    """Applies a logged entry without validation: it was valid when it was logged."""
    if entry.first_number != fold.next_number:
        raise DataError(
            f"log entry {entry.first_number} follows transaction {fold.number}: some are missing"
        )
    if fold.write_id and entry.previous_write_id not in (None, fold.write_id):
        raise NotFoundError(
            f"log entry {entry.first_number} follows write {entry.previous_write_id}, the state "
            f"write {fold.write_id}: the log was restored from a backup"
        )
    fold.time_ms = entry.time_ms
    fold.write_id = entry.write_id
    for encoded in decode_entry(entry):
        apply_transaction(fold, encoded)
    fold.finish_entry()


def apply_if_valid(fold: Fold, encoded: EncodedTransaction) -> Outcome:
    """Applies the transaction if it is valid on the fold."""
    verdict, earlier = _validate(fold, encoded)
    if verdict.status is not Status.APPLIED:
        return Outcome(verdict.status, earlier, verdict.reason)
    apply_transaction(fold, encoded)
    return Outcome(Status.APPLIED, fold.number)


def apply_transaction(fold: Fold, encoded: EncodedTransaction) -> None:
    """Applies the transaction under the next number, and stores its id."""
    transaction = encoded.transaction
    transaction.apply(fold)
    if transaction.remembered:
        fold.remember(transaction.id, transaction.kind, encoded.fingerprint)
    fold.number += 1


def _validate(fold: Fold, encoded: EncodedTransaction) -> tuple[Verdict, int | None]:
    transaction = encoded.transaction
    if transaction.remembered:
        earlier = fold.applied(transaction.id, transaction.kind)
        if earlier is not None and earlier.fingerprint == encoded.fingerprint:
            return already_done(f"applied as transaction {earlier.number}"), earlier.number
        if earlier is not None:
            return refused(
                f"id {transaction.id} was used by transaction {earlier.number} with other content"
            ), None
    if not fold.initialised and transaction.kind != "initialise_table":
        return refused("the table is not initialised"), None
    try:
        return transaction.validate(fold), None
    except (InvalidRequestError, OverflowError, UnicodeEncodeError) as error:
        return refused(f"a value does not fit the state store: {error}"), None
