"""A transaction of a table: reads at one version, and changes that are committed together."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import pyarrow as pa

from sleeper.api.own_changes import OwnChanges
from sleeper.api.results import Rowset
from sleeper.api.rows import Rows, list_paths, read_batches
from sleeper.datafiles.arrow import arrow_schema
from sleeper.deletion.keys import write_delete
from sleeper.deletion.service import REGIONS_MAX, check_delete_id, check_regions
from sleeper.errors import (
    ConflictError,
    InvalidRequestError,
    StateMovedOnError,
    UnavailableError,
)
from sleeper.ingest.row_writer import check_not_snapshot
from sleeper.ingest.run import StagedRows, stage_rows
from sleeper.ingest.service import find_source_schema, ingest_table
from sleeper.instance import OpenTable
from sleeper.partitions.region import Region, disjoint_regions, whole_region
from sleeper.processing.model import Processing
from sleeper.processing.text import parse_aggregations, parse_filters
from sleeper.query.hold import VersionHold
from sleeper.query.request import Query, select_regions
from sleeper.runs.commit import begin_run, check_file_outcome, commit_until_settled
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.statestore.transactions.check_unchanged import CHANGED, CheckUnchanged
from sleeper.statestore.transactions.codec import hash_request
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.transaction import (
    Outcome,
    new_transaction_id,
)
from sleeper.statestore.transactions.transaction import Transaction as LoggedTransaction
from sleeper.systems import load, systems

if TYPE_CHECKING:
    from sleeper.api.table import Table

logger = logging.getLogger(__name__)

_SECONDS_UNTIL_HOLD = 2.0
_KINDS_WITH_REQUEST = ("delete_rows", "add_files")


class TransactionPart(Protocol):
    """What a system adds to the changes of a transaction, opened at the version that is read."""

    kind: str
    """The kind of the change in the log."""

    def add(self, name: str, key: object, value: object) -> None:
        """Adds a value. InvalidRequestError if it does not fit."""

    def change(self, transaction_id: str) -> LoggedTransaction | None:
        """Returns the change, None if nothing was added. InvalidRequestError if it is too large."""


@dataclass(frozen=True, slots=True)
class _Written:
    """The changes of so many deletes and ingests, with their files."""

    deletes: int = 0
    ingests: int = 0
    changes: tuple[LoggedTransaction, ...] = ()

    def fits(self, deleted: Sequence[Region], ingests: int) -> bool:
        """Returns whether nothing was deleted or ingested since."""
        return (self.deletes, self.ingests) == (len(deleted), ingests)


class Transaction:
    """Reads of a table at one version, and changes that are committed together or not at all.

    `Table.transaction` returns it. It is a context manager: the end of the block commits, and an
    exception discards all changes. Reads have the changes of the transaction. If another
    transaction has changed rows in the keys, ranges or regions that were read, the commit raises
    `ConflictError` and changes nothing: repeat the block, or use `Table.transact`.

    `version` is the version that is read, and `id` the id of the transaction. After the commit,
    `number` is the number of the last change, which is also the sequence number of the exports;
    `done_before` is true if an earlier transaction with the id was committed.
    An object is for one thread.
    """

    def __init__(self, table: "Table", opened: OpenTable, transaction_id: str | None) -> None:
        if transaction_id is not None:
            check_delete_id(transaction_id)
        self._table = table
        self._opened = opened
        self.id = transaction_id or new_transaction_id()
        self._request = json.dumps({"transaction": self.id})
        with opened.state.reading() as state:
            self.version: int = state.number
            self._schema = state.schema
            self._parts: list[TransactionPart] = [
                load(each.transaction_part)(state) for each in systems() if each.transaction_part
            ]
            earlier = None if transaction_id is None else self._find_earlier(state)
        self.number: int | None = earlier
        self.done_before = earlier is not None
        self._read: list[Region] = []
        self._deleted: list[Region] = []
        self._staged: StagedRows | None = None
        self._ingests = 0
        self._written = _Written()
        self._unused: list[LoggedTransaction] = []
        self._hold: VersionHold | None = None
        self._resources = ExitStack()
        self._own = OwnChanges(opened, self.version, self._resources)
        self._is_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is None and self._is_open:
            self.commit()
        self.close()

    def query(
        self,
        keys: Iterable[Sequence[object]] = (),
        ranges: Iterable[tuple[object | None, object | None]] = (),
        regions: Iterable[Mapping[str, Any]] = (),
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        filters: str = "",
        aggregations: str = "",
    ) -> Rowset:
        """Returns rows of the version, with the deletes and rows of the transaction.

        Arguments and errors are those of `Table.query`. The first query after a change writes all
        rows of the transaction to files, which takes as long as a commit. Read the result before
        the transaction ends. Exports are not seen.

        The commit fails if a row in the keys, ranges and regions was changed by then, also one that
        `columns`, `limit` and `filters` leave out. Without them that is any row of the table.
        """
        self._check_open()
        keys, ranges, regions = list(keys), list(ranges), list(regions)
        selected = select_regions(self._schema, keys, ranges, regions)
        self._read += selected or [whole_region(self._schema)]
        if self._deleted or self._staged is not None:
            processing = Processing(parse_filters(filters), parse_aggregations(aggregations))
            names = None if columns is None else tuple(columns)
            self._make_changes()
            return Rowset(self._own.run(Query(selected or None, names, limit, None, processing)))
        if self._hold is None:
            self._hold = self._keep_version()
        return self._table.query(
            keys=keys,
            ranges=ranges,
            regions=regions,
            columns=columns,
            limit=limit,
            as_of=self.version,
            filters=filters,
            aggregations=aggregations,
        )

    def _find_source_schema(self) -> pa.Schema:
        return arrow_schema(find_source_schema(self._opened))

    def ingest(self, rows: Rows, op_column: str | None = None) -> None:
        """Adds rows, after the deletes of the transaction. Rows are those of `Table.ingest`.

        Paths of files are refused. All calls of a transaction are one ingest: of equal keys of a
        table of latest rows, the last row is kept.

        Raises `InvalidRequestError` if a row does not fit the schema, or for a snapshot table,
        whose loads replace all rows. Both end the transaction.
        """
        self._check_open()
        if list_paths(rows) is not None:
            raise InvalidRequestError("paths of files in a transaction (expected Arrow data)")
        try:
            if self._staged is None:
                check_not_snapshot(self._opened)
                state, clock = self._opened.state, self._opened.instance.clock
                start = begin_run(state, clock, self.id)
                stage = stage_rows(ingest_table(self._opened), start)
                self._staged = self._resources.enter_context(stage)
            batches = read_batches(rows, self._find_source_schema, op_column)
            self._ingests += 1
            self._staged.add_batches(batches, op_column)
        except BaseException:
            # Some of the rows may be staged, and the deletes belong to them.
            self.close()
            raise

    def delete(
        self,
        keys: Iterable[Sequence[object]] = (),
        ranges: Iterable[tuple[object | None, object | None]] = (),
        regions: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        """Deletes the rows in any of the keys, ranges and regions, but none of the transaction.

        Arguments and errors are those of `Table.delete`. Rows that other transactions commit
        before this one are deleted too.
        """
        self._check_open()
        self._deleted += check_regions(select_regions(self._schema, keys, ranges, regions))

    def export(self, queue: str, key: object, value: object) -> None:
        """Exports a key with a value to a queue that was created with `on="transaction"`.

        `key` is the value of the queue's key field, or a tuple or mapping of several. `value` is a
        tuple or mapping of the value fields, or the value of a single one; None means that the key
        is gone. Of several exports of a key, the last is kept. The exports of a transaction have
        at most 4 MiB.

        Raises `InvalidRequestError` for an unknown queue, a queue on the changes of the table, and
        a key or value that does not fit.
        """
        self._check_open()
        for part in self._parts:
            part.add(queue, key, value)

    def commit(self) -> int:
        """Commits all changes in one entry of the log, and returns `number`.

        Without changes it is the version that was read.

        Raises `ConflictError` if rows that were read have been changed, and `StateMovedOnError` if
        the table or an export queue was deleted. After `UnavailableError` the changes may or may
        not be committed: repeat the transaction with the id in the message.
        """
        self._check_open()
        try:
            if self.number is None:
                changes = self._write_changes()
                self.number = self._commit(changes) if changes else self.version
        finally:
            self.close()
        return self.number

    def close(self) -> None:
        """Ends the transaction. Changes that are not committed are discarded."""
        self._is_open = False
        self._staged = None
        self._resources.close()
        unused, self._unused = self._unused, []
        self._delete_files(unused)

    def _make_changes(self) -> None:
        """Makes the changes so far in the state that queries read, unless it has them."""
        if self._written.fits(self._deleted, self._ingests):
            return
        fork = self._own.open_state()
        changes = self._write_rows(fork)
        try:
            self._own.make(fork, changes)
        except BaseException:
            # The next query would read the state without these changes.
            self._written = _Written()
            raise

    def _write_rows(self, fork: StateStore | None = None) -> list[LoggedTransaction]:
        """Returns the delete and the files, which it writes unless a query has.

        With a `fork`, the files are for a query too.
        """
        if self._written.fits(self._deleted, self._ingests):
            return list(self._written.changes)
        changes: list[LoggedTransaction] = []
        if self._deleted:
            regions = check_regions(self._deleted)
            changes.append(write_delete(self._opened, regions, self.id, self._request))
        self._unused += changes
        if self._staged is not None:
            staged = self._staged
            if fork is not None:
                staged = self._own.stage_at_version(staged, fork)
            added = staged.start.commit_of(self.id, staged.write(), self._request)
            changes.append(added)
            self._unused.append(added)
        self._written = _Written(len(self._deleted), self._ingests, tuple(changes))
        return changes

    def _keep_version(self) -> VersionHold:
        """Keeps the version of a long transaction from garbage collection."""
        instance = self._opened.instance
        seconds = instance.queries.engine().settings.hold_seconds
        owner = f"transaction on {self._table.name}"
        hold = VersionHold(self._opened.state, self.version, seconds, instance.clock, owner)
        hold.acquire_after(_SECONDS_UNTIL_HOLD)
        self._resources.callback(hold.release)
        return hold

    def _write_changes(self) -> list[LoggedTransaction]:
        """Writes the files of the changes, and returns the changes in their order."""
        # Last, because its number is that of the transaction.
        last = [part.change(self.id) for part in self._parts]
        changes = self._write_rows()
        changes += (change for change in last if change is not None)
        if changes and self._read:
            read = disjoint_regions(self._read)
            if len(read) > REGIONS_MAX:
                read = [whole_region(self._schema)]
            changes.insert(0, CheckUnchanged(self.version, tuple(read)))
        return changes

    def _commit(self, changes: Sequence[LoggedTransaction]) -> int:
        state = self._opened.state
        # Once they may be committed, their files are deleted only if they are refused.
        self._unused = [each for each in self._unused if each not in changes]
        try:
            commit_until_settled(self._opened.check_active)
            outcome = commit_until_settled(lambda: state.commit_together(*changes))[-1]
        except UnavailableError as error:
            raise UnavailableError(
                f"{error}; transaction not confirmed: repeating it with id={self.id!r} changes "
                "nothing twice"
            ) from error
        if outcome.refused:
            return self._settle_refusal(changes, outcome)
        assert outcome.number is not None
        return outcome.number

    def _settle_refusal(self, changes: Sequence[LoggedTransaction], outcome: Outcome) -> int:
        """Returns the number of an earlier commit of the id, or raises the reason."""
        with self._opened.state.reading() as state:
            earlier = self._find_earlier(state)
        if earlier is not None:
            self.done_before = True
            return earlier
        self._delete_files(changes)
        what = f"transaction on table {self._table.name!r}"
        if outcome.reason.startswith(CHANGED):
            raise ConflictError(f"{what}: {outcome.reason}")
        for change in changes:
            if isinstance(change, AddFiles):
                check_file_outcome(self._opened.state, change, outcome)
        raise StateMovedOnError(f"{what}: {outcome.reason}")

    def _delete_files(self, changes: Sequence[LoggedTransaction]) -> None:
        """Deletes the files of changes that are not committed, which would be orphans for days."""
        paths: list[str] = []
        for change in changes:
            if isinstance(change, AddFiles):
                for new in change.files:
                    paths += (new.file.path + each for each in ("", *new.file.sidecars))
            if isinstance(change, DeleteRows) and change.keys is not None:
                paths += (change.keys.path + each for each in ("", *change.keys.sidecars))
        if not paths:
            return
        try:
            self._opened.instance.storage.root.delete(paths)
        except UnavailableError as error:
            logger.warning("could not delete files of a transaction: %s", error)

    def _find_earlier(self, state: TableState) -> int | None:
        """Returns the number of an earlier transaction of the id, None if there was none.

        InvalidRequestError if the id was used for something else.
        """
        kinds = (*_KINDS_WITH_REQUEST, *(part.kind for part in self._parts))
        matches = [(kind, state.jobs.applied(self.id, kind)) for kind in kinds]
        applied = [(kind, each) for kind, each in matches if each is not None]
        for kind, each in applied:
            if kind in _KINDS_WITH_REQUEST and each.fingerprint != hash_request(self._request):
                raise InvalidRequestError(
                    f"id {self.id} was used by transaction {each.number} for something else "
                    "(expected a new id)"
                )
        return max((each.number for _, each in applied), default=None)

    def _check_open(self) -> None:
        if not self._is_open:
            raise InvalidRequestError(
                f"the transaction on table {self._table.name!r} has ended (expected a new one)"
            )
