"""Commits an entry of the log: validate, apply, append, in one SQLite transaction."""

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from sleeper.clock import Clock, iso_time
from sleeper.errors import (
    ConflictError,
    DataError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from sleeper.retries import Backoff, retry
from sleeper.statestore.database import Database
from sleeper.statestore.fold import Fold, days, is_jump, jump_error
from sleeper.statestore.log import LogEntry, TransactionLog
from sleeper.statestore.transactions.codec import EncodedTransaction, decode_entry
from sleeper.statestore.transactions.table_definition import AcceptTime
from sleeper.statestore.transactions.transaction import (
    Outcome,
    Status,
    Verdict,
    already_done,
    refused,
)

_CONFLICT_BACKOFF = Backoff(retries=19, seconds_first=0.01, seconds_max=1.0)
_APPEND_BACKOFF = Backoff(retries=2, seconds_first=0.02)

_WARNED_BEHIND_MS = 3_600_000

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class CommitRequest:
    """The transactions of one caller, and their outcomes. Those `together` are applied or none."""

    transactions: Sequence[EncodedTransaction]
    together: bool = False
    outcomes: list[Outcome] = field(default_factory=list)
    error: Exception | None = None
    done: bool = False

    def settle(self, outcomes: list[Outcome]) -> None:
        self.outcomes = outcomes
        self.done = True

    def fail(self, error: Exception) -> None:
        self.error = error
        self.done = True


class _NotAllAppliedError(Exception):
    """A copy of the state that may be stale rejected a transaction."""


class EntryCommitter:
    """Commits entries to the log and state of one table, for one thread at a time."""

    def __init__(self, database: Database, log: TransactionLog, clock: Clock) -> None:
        self._database = database
        self._log = log
        self._clock = clock
        # Whether the last read of the log found no entry of another writer.
        self._is_alone = False
        self._warned_behind = False

    def commit(self, group: Sequence[CommitRequest]) -> None:
        """Commits the requests as one entry, and sets the outcomes or the error of each.

        Each transaction is validated against the state after those before it.
        """
        try:
            self._commit_group(group)
        except (ConflictError, UnavailableError, NotFoundError) as error:
            fail_rest(group, error)
        except Exception as error:
            if len(group) == 1:
                fail_rest(group, error)
                return
            # One request raises an error, so each is committed alone to fail only that one.
            for request in group:
                self.commit([request])

    def _commit_group(self, group: Sequence[CommitRequest]) -> None:
        for request, outcomes in zip(group, self._commit_entry(group), strict=True):
            request.settle(outcomes)

    def _commit_entry(self, group: Sequence[CommitRequest]) -> list[list[Outcome]]:
        if self._is_alone:
            with suppress(ConflictError, _NotAllAppliedError):
                return self._try_commit(group, catches_up=False)
        return retry(
            lambda: self._try_commit(group, catches_up=True),
            on=ConflictError,
            backoff=_CONFLICT_BACKOFF,
        )

    def _try_commit(self, group: Sequence[CommitRequest], catches_up: bool) -> list[list[Outcome]]:
        """Commits one entry. ConflictError if the copy of the state is stale.

        Skipping the catch-up saves a request. The append is conditional on the head, so it detects
        a stale copy; a rejection by a stale copy raises _NotAllAppliedError, to validate again.
        """
        with self._folded(group, catches_up) as (grouped, entry):
            if entry is not None:
                self._append(entry)
        return grouped

    def start(self, request: CommitRequest, unfinished: ExitStack) -> Callable[[], None] | None:
        """Folds the request and starts its append. Returns a function that ends the commit.

        None if `commit` has to read the log first. The function fails the request if the log is
        unavailable; after any other error, such as a conflict, the caller uses `commit`.
        `unfinished` rolls back a commit that was not ended.
        """
        if not self._is_alone:
            return None
        with ExitStack() as stack, suppress(_NotAllAppliedError):
            folded = stack.enter_context(self._folded([request], catches_up=False))
            ((outcomes,), entry) = folded
            assert entry is not None
            stack.enter_context(self._database.paused())
            append = self._log.start_append(entry)
            commit = stack.pop_all()
            unfinished.callback(_roll_back, commit)
            return lambda: self._finish(request, outcomes, append, commit)
        return None

    def _finish(
        self,
        request: CommitRequest,
        outcomes: list[Outcome],
        append: Callable[[], None],
        commit: ExitStack,
    ) -> None:
        # Unless it ends well, the next commit reads the log.
        self._is_alone = False
        try:
            with commit:
                append()
        except UnavailableError as error:
            request.fail(error)
        else:
            self._is_alone = True
            request.settle(outcomes)

    @contextmanager
    def _folded(
        self, group: Sequence[CommitRequest], catches_up: bool
    ) -> Iterator[tuple[list[list[Outcome]], LogEntry | None]]:
        """Yields outcomes, and the entry to append if one applied; folded at the end."""
        transactions = [t for request in group for t in request.transactions]
        with self._database.writing() as connection:
            fold = Fold(connection)
            if catches_up:
                number = fold.number
                catch_up(self._database, fold, self._log)
                self._is_alone = fold.number == number
            first = fold.next_number
            fold.time_ms = self._entry_time(fold, transactions, catches_up)
            grouped = [_apply_request(fold, request) for request in group]
            outcomes = [outcome for each in grouped for outcome in each]
            if not catches_up and fold.number - first + 1 < len(transactions):
                raise _NotAllAppliedError
            entry = None
            if fold.number >= first:
                previous_write_id, write_id = fold.write_id, uuid.uuid4().hex
                fold.write_id = write_id
                fold.finish_entry()
                lines = [
                    t.line
                    for t, outcome in zip(transactions, outcomes, strict=True)
                    if outcome.status is Status.APPLIED
                ]
                entry = LogEntry(
                    first,
                    fold.number,
                    fold.time_ms,
                    write_id,
                    "\n".join(lines),
                    previous_write_id=previous_write_id,
                )
            yield grouped, entry

    def _entry_time(
        self, fold: Fold, transactions: Sequence[EncodedTransaction], is_up_to_date: bool
    ) -> int:
        """Returns the later of the clock and the log's time. UnavailableError for a long jump.

        A jump would drop the ids of jobs, expire leases and holds, and age off rows, and the
        log's time never decreases.
        """
        now_ms = self._clock()
        behind_ms = fold.time_ms - now_ms
        if behind_ms > _WARNED_BEHIND_MS and not self._warned_behind:
            self._warned_behind = True
            logger.warning(
                "log time is %s ahead of this machine's clock: leases, holds and delays do not "
                "expire until the clock reaches %s",
                days(behind_ms),
                iso_time(fold.time_ms),
            )
        accepted = [
            t.transaction.time_ms for t in transactions if isinstance(t.transaction, AcceptTime)
        ]
        if fold.initialised and is_jump(now_ms, max([fold.time_ms, *accepted])):
            if not is_up_to_date:
                raise _NotAllAppliedError
            raise jump_error(now_ms, fold.time_ms)
        return max(now_ms, fold.time_ms)

    def _append(self, entry: LogEntry) -> None:
        """Appends the entry. A put whose response was lost may have succeeded."""
        try:
            with self._database.paused():
                retry(lambda: self._log.append(entry), on=UnavailableError, backoff=_APPEND_BACKOFF)
        except ConflictError:
            if not self._landed(entry):
                raise

    def _landed(self, entry: LogEntry) -> bool:
        try:
            entries = self._log.read(entry.first_number - 1, limit=1)
        except NotFoundError:
            return False  # trimmed already: judged again, by its id, from a snapshot
        return bool(entries) and entries[0].write_id == entry.write_id


class _UnfinishedError(Exception):
    """A commit was started and not ended."""


def _roll_back(commit: ExitStack) -> None:
    """Rolls the commit back, unless it has ended."""
    with suppress(_UnfinishedError), commit:
        raise _UnfinishedError


def fail_rest(group: Sequence[CommitRequest], error: Exception) -> None:
    """Sets the error of each request that is not done."""
    for request in group:
        if not request.done:
            request.fail(error)


_ENTRIES_PER_READ = 100


def catch_up(database: Database, fold: Fold, log: TransactionLog) -> None:
    """Applies every entry after the number of the fold of the database.

    NotFoundError if some were trimmed, or if the fold is of another history than the log.
    """
    while entries := _read_after(database, fold.number, log):
        for entry in entries:
            apply_entry(fold, entry)


def _read_after(database: Database, number: int, log: TransactionLog) -> Sequence[LogEntry]:
    with database.paused():
        return log.read(number, _ENTRIES_PER_READ)


def apply_entry(fold: Fold, entry: LogEntry) -> None:
    """Applies a logged entry without validation: it was valid when it was logged."""
    if entry.first_number != fold.next_number:
        raise DataError(
            f"log entry {entry.first_number} follows transaction {fold.number}: entries in between "
            "are missing"
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


def _apply_request(fold: Fold, request: CommitRequest) -> list[Outcome]:
    if request.together:
        return apply_together(fold, request.transactions)
    return [apply_if_valid(fold, t) for t in request.transactions]


def apply_together(fold: Fold, transactions: Sequence[EncodedTransaction]) -> list[Outcome]:
    """Applies all transactions, or refuses all of them with the reason of the first refusal.

    If the first one whose id is remembered was applied before with the same content, all were.
    """
    first = next((t for t in transactions if t.transaction.remembered), None)
    if first is not None:
        earlier = fold.applied(first.transaction.id, first.transaction.kind)
        if earlier is not None and earlier.fingerprint == first.fingerprint:
            return [_outcome_of_earlier(fold, t) for t in transactions]
    before = fold.save()
    outcomes = []
    for encoded in transactions:
        outcome = apply_if_valid(fold, encoded)
        if outcome.refused or (
            encoded.transaction.remembered and outcome.status is Status.ALREADY_DONE
        ):
            fold.go_back(before)
            return [Outcome(Status.REFUSED, None, outcome.reason)] * len(transactions)
        outcomes.append(outcome)
    return outcomes


def _outcome_of_earlier(fold: Fold, encoded: EncodedTransaction) -> Outcome:
    transaction = encoded.transaction
    earlier = fold.applied(transaction.id, transaction.kind) if transaction.remembered else None
    number = None if earlier is None else earlier.number
    return Outcome(Status.ALREADY_DONE, number, "committed before")


def apply_transaction(fold: Fold, encoded: EncodedTransaction) -> None:
    """Applies the transaction under the next number, and stores its id."""
    transaction = encoded.transaction
    transaction.apply(fold)
    fold.record(transaction.kind, transaction.effect())
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
