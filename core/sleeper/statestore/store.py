"""The state store of one table: commit transactions, read versions."""

import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from sleeper.clock import Clock, system_clock
from sleeper.errors import DataError, NotFoundError, SleeperError
from sleeper.statestore.commit_queue import CommitQueue
from sleeper.statestore.conversion import delete_copies
from sleeper.statestore.database import Database
from sleeper.statestore.database_errors import translated_errors
from sleeper.statestore.entry_commit import CommitRequest, catch_up
from sleeper.statestore.floor import Floor
from sleeper.statestore.fold import Fold
from sleeper.statestore.fold_tables import create_tables, has_tables
from sleeper.statestore.group_commit import GroupCommitter
from sleeper.statestore.holds import Holds, HoldStore
from sleeper.statestore.log import LogEntry, TransactionLog
from sleeper.statestore.reading.followers import Follower, find_follower
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.snapshots import Snapshot, SnapshotStore
from sleeper.statestore.transactions.codec import encode
from sleeper.statestore.transactions.holds import ReleaseHold
from sleeper.statestore.transactions.transaction import Outcome, Transaction, check_outcome
from sleeper.statestore.version import Version
from sleeper.statestore.version_copy import copy_version
from sleeper.tracing import span

logger = logging.getLogger(__name__)

_SNAPSHOTS_KEPT = 2

R = TypeVar("R")


class StateStore:
    """The state of one table. Thread-safe; each process opens its own.

    `database` holds the fold; `log` either lives in it too (a local instance) or
    elsewhere (then the fold is a copy that follows it). `holds` are beside it. Processes that
    share the database pass a `queue`, to share commits too. Traces have the `table_id`. Errors are
    of `sleeper.errors`.
    """

    def __init__(
        self,
        database: Database,
        log: TransactionLog,
        holds: HoldStore,
        clock: Clock = system_clock,
        snapshots: SnapshotStore | None = None,
        queue: CommitQueue | None = None,
        table_id: str = "",
    ) -> None:
        self._database = database
        self._table_id = table_id
        self._log = log
        self._holds = holds
        self.floor = Floor(clock)
        self._clock = clock
        self._snapshots = snapshots
        if snapshots is not None and not database.path.exists():
            snapshots.install_newest(database.path)
        with database.reading() as connection:
            is_current = has_tables(connection)
        if not is_current:
            with database.writing() as connection:
                create_tables(connection)
        self._committer = GroupCommitter(database, log, clock, queue)

    @property
    def database(self) -> Database:
        """The database of the fold, which outlives this object where states are cached."""
        return self._database

    @property
    def holds(self) -> Holds:
        """The holds of readers on versions."""
        # Not an attribute: a cycle of references would keep the store open.
        return Holds(self._holds, self.reading, self._clock)

    def commit(self, *transactions: Transaction) -> list[Outcome]:
        """Commits each valid transaction, in order. Returns one outcome each. Durable on return.

        Each is validated separately: one may be refused and the next applied. ConflictError
        after too many conflicts. After UnavailableError the outcome is unknown, so commit the
        same transactions again.
        """
        if not transactions:
            return []
        return self._commit(transactions, together=False)

    def commit_together(self, *transactions: Transaction) -> list[Outcome]:
        """Commits all transactions in one entry of the log, in order, or none of them.

        If one is refused, all are, with its reason. If the first one whose id the state remembers
        was committed before, with the same content, all are already done. Errors as of `commit`.
        """
        return self._commit(transactions, together=True)

    def start_commit(
        self, request: CommitRequest, unfinished: ExitStack
    ) -> Callable[[], None] | None:
        """Starts one of several commits, see `commit_jointly`."""
        return self._committer.start(request, unfinished)

    def read_entries(self, after: int, limit: int) -> Sequence[LogEntry]:
        """Returns entries of the log after one that ends at `after`, up to `limit`.

        NotFoundError if the log no longer has them.
        """
        return self._log.read(after, limit)

    def commit_or_raise(self, transaction: Transaction) -> int | None:
        """Commits one transaction. StateMovedOnError with the reason if it is refused.

        Returns its number; None if it was already done by other means.
        """
        (outcome,) = self.commit(transaction)
        check_outcome(transaction, outcome)
        return outcome.number

    @contextmanager
    def reading(self, version: Version | None = None, stale: bool = False) -> Iterator[TableState]:
        """Yields a version of the state, by default the newest, unchanging while it is open.

        `stale` reads the local copy without a request to the log.
        """
        if not stale:
            self._refresh()
        with self._database.reading() as connection:
            state = TableState(connection, version, lambda: self.holds.unexpired())
            try:
                yield state
            finally:
                state.close()

    def newest_number(self) -> int:
        """Returns the number of the newest transaction of the log, to which the copy is brought."""
        head, number = self._log.head(), self._number()
        if number > head:
            # A commit came between the two reads.
            head = self._log.head()
        if number == head:
            return number
        self._with_snapshot_fallback(self._catch_up)
        return self._number()

    def followers(self) -> list[Follower]:
        """Returns every follower with its position and lag."""
        with self.reading() as state:
            return [
                find_follower(state, name, cursor_key, start, self._log.cursor(cursor_key))
                for name, cursor_key, start in state.collection.follower_starts()
            ]

    def release_hold(self, hold_id: str) -> None:
        """Releases a hold, also one that an older version of Sleeper wrote into the log."""
        self.holds.release([hold_id])
        with self.reading() as state:
            is_logged = any(hold.id == hold_id for hold in state.collection.logged_holds())
        if is_logged:
            self.commit_or_raise(ReleaseHold(hold_id))

    def advance_follower(self, name: str, to: int) -> None:
        """Advances the follower's cursor to `to`. NotFoundError if there is no such follower."""
        with self.reading() as state:
            keys = {n: key for n, key, _ in state.collection.follower_starts()}
        if name not in keys:
            raise NotFoundError(f"no follower {name}")
        self._log.advance(keys[name], to)

    def used_bodies(self, paths: Sequence[str]) -> set[str]:
        """Returns the objects among `paths` that the log still needs."""
        return self._log.used_bodies(paths)

    def save_snapshot(self) -> int:
        """Writes a verified snapshot of the newest state and drops old ones; returns its number."""
        self._database.check_writable()
        snapshots = self._need_snapshots()
        self._refresh()
        number = snapshots.save(self._database)
        snapshots.drop_all_but(_SNAPSHOTS_KEPT, self._log.head)
        return number

    def copy_version(self, version: int, target: Path, keeps_ids: bool = False) -> None:
        """Writes the state of a version to a new file: that of a table which begins there.

        The file is the argument of `Tables.install`. `keeps_ids` keeps the ids of transactions, and
        what systems have.
        InvalidRequestError if the version is not readable.
        """
        self._refresh()
        with translated_errors(target):
            copy_version(self._database, target, version, keeps_ids)

    def snapshots(self) -> list[Snapshot]:
        """Returns the snapshots, newest first; none without a snapshot store."""
        return self._snapshots.all() if self._snapshots is not None else []

    def newest_snapshot(self) -> int | None:
        """Returns the number of the newest valid snapshot; None if there is none."""
        verified = self._need_snapshots().verified(1, self._log.head())
        return verified[0].number if verified else None

    def trim(self, up_to_max: int | None = None) -> int:
        """Trims the unneeded part of the log. Returns its last number, at most `up_to_max`.

        The part ends below the last two verified snapshots, unexpired holds, followers of systems,
        and others that have lost no changes.
        """
        verified = self._need_snapshots().verified(_SNAPSHOTS_KEPT, self._log.head())
        if len(verified) < _SNAPSHOTS_KEPT:
            return 0
        followers = self.followers()
        held = [hold.version for hold in self.holds.unexpired()]
        with self.reading() as state:
            if state.is_snapshot_table:
                followers = [f for f in followers if f.is_of_system]
        followed = [f.position for f in followers if f.is_of_system or not f.is_passed]
        limits = [verified[-1].number, *held, *followed]
        up_to: int = min(limits if up_to_max is None else [*limits, up_to_max])
        self._log.trim(up_to)
        return up_to

    def is_trimmed(self, number: int) -> bool:
        """Returns whether the log no longer has the transaction.

        An entry is trimmed when its last transaction is unneeded.
        """
        try:
            self._log.read(number - 1, limit=1)
        except NotFoundError:
            return True
        return False

    def vacuum(self) -> bool:
        """Removes the remains of deleted rows from the file of the state, and of the log in it.

        Its copies in older formats are deleted. Returns False if a reader of another process still
        needs the remains: repeat it later.
        """
        delete_copies(self._database.path)
        return self._database.vacuum()

    def save_space(self) -> None:
        """Moves the -wal file of the state into its file, unless a reader needs it.

        UnavailableError if there is no space for that.
        """
        self._database.truncate_wal()

    def close(self) -> None:
        """Deletes the floor and closes the files. Later uses reopen them."""
        with suppress(SleeperError):  # it expires
            self.floor.end(self.holds)
        self._committer.close()
        self._database.close()

    def _commit(self, transactions: Sequence[Transaction], together: bool) -> list[Outcome]:
        encoded = [encode(t) for t in transactions]
        with span("commit", table_id=self._table_id, transactions=len(encoded)) as traced:
            if traced.is_recorded:
                kinds = sorted({type(t).__name__ for t in transactions})
                traced.set("sleeper.transaction_types", kinds)
            return self._with_snapshot_fallback(lambda: self._committer.commit(encoded, together))

    def _refresh(self) -> None:
        self.newest_number()

    def _number(self) -> int:
        ((number,),) = self._database.read_rows("SELECT number FROM position")
        return int(number)

    def _catch_up(self) -> None:
        with self._database.writing() as connection:
            catch_up(self._database, Fold(connection), self._log)

    def _with_snapshot_fallback(self, action: Callable[[], R]) -> R:
        """Runs the action. If the copy cannot follow the log, retries it from the newest snapshot.

        The copy is behind the log's start, or the log was restored from a backup. A log that was
        never trimmed needs no snapshot.
        """
        try:
            return action()
        except NotFoundError as gap:
            if self._snapshots is None:
                raise DataError(
                    f"the state is behind the log and no snapshot can be opened: {gap}"
                ) from gap
            logger.info("opening the newest snapshot: %s", gap)
            if self._snapshots.open_newest(self._database, self._log.head()) is None:
                self._start_empty(gap)
            try:
                return action()
            except NotFoundError as still:
                raise DataError(f"the newest intact snapshot is too old: {still}") from still

    def _start_empty(self, gap: NotFoundError) -> None:
        """Clears the copy. DataError if the log no longer has its first entry."""
        try:
            self._log.read(0, limit=1)
        except NotFoundError:
            raise DataError(f"the state is behind the log and there is no snapshot: {gap}") from gap
        with (
            self._database.exclusively() as connection,
            closing(sqlite3.connect(":memory:", isolation_level=None)) as empty,
        ):
            create_tables(empty)
            empty.backup(connection)

    def _need_snapshots(self) -> SnapshotStore:
        if self._snapshots is None:
            raise NotFoundError("this state store was opened without storage for snapshots")
        return self._snapshots
