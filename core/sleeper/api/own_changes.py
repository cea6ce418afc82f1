"""The version that a transaction reads, with the changes that it has made so far.

The changes are what the commit would add to the log: a delete, and files of the ingested rows. They
are made in a fork of the state, and queries read the fork as they read the table, so that a read
before the commit has the rows of one after it. Files are written when a query needs them, and the
commit uses them if nothing was changed since.
"""

import uuid
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from sleeper.datafiles.engine.settings import spill_folder
from sleeper.errors import ConflictError, InvalidRequestError
from sleeper.ingest.run import StagedRows
from sleeper.instance import OpenTable
from sleeper.query.hold import VersionHold
from sleeper.query.request import Query
from sleeper.query.result import QueryResult
from sleeper.query.run import run_query
from sleeper.query.service import make_query_table
from sleeper.statestore.fork import open_fork
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.transaction import Transaction


class OwnChanges:
    """Queries of a version with changes. `resources` ends with the transaction."""

    def __init__(self, table: OpenTable, version: int, resources: ExitStack) -> None:
        self._table = table
        self._version = version
        self._resources = resources
        self._engine = table.instance.queries.engine()
        self._fork: StateStore | None = None
        self._is_held = False

    def open_state(self) -> StateStore:
        """Opens the state of the version, without changes."""
        self._keep_version()
        file = self._folder / f"{uuid.uuid4().hex}.db"
        fork = open_fork(self._state, file, self._version, lambda: self._time_ms)
        self._resources.callback(fork.close)
        return fork

    def stage_at_version(self, staged: StagedRows, fork: StateStore) -> StagedRows:
        """Returns the staged rows, to be written to the leaves of the version.

        ConflictError if they have a newer schema than the version.
        """
        with fork.reading() as state:
            newest = state.schema.version
        if staged.table.schema.version != newest:
            raise ConflictError(
                f"transaction on table {self._table.ref.name!r}: the schema was changed by "
                f"transaction {staged.table.schema.version}, after version {self._version}, which "
                "the transaction reads"
            )
        return replace(staged, table=replace(staged.table, state=fork))

    def make(self, fork: StateStore, changes: list[Transaction]) -> None:
        """Makes the changes in the state that was opened. Queries read it from now on.

        InvalidRequestError if the table cannot have one of them.
        """
        outcome = fork.commit_together(*changes)[-1]
        if outcome.refused:
            raise InvalidRequestError(
                f"transaction on table {self._table.ref.name!r}: {outcome.reason}"
            )
        before, self._fork = self._fork, fork
        if before is not None:
            # The results of earlier queries are planned, and read only files.
            before.close()
            before.database.path.unlink(missing_ok=True)

    def run(self, query: Query) -> QueryResult:
        """Starts a query of the version with the changes that were made."""
        assert self._fork is not None
        table = replace(make_query_table(self._table), store=self._fork)
        # Nothing is cached of a query that names its version.
        query = replace(query, version=self._fork.newest_number(), now_ms=self._time_ms)
        return run_query(query, table, self._engine, is_held=True)

    @cached_property
    def _folder(self) -> Path:
        folder = spill_folder(self._engine.settings.engine, "transaction")
        return self._resources.enter_context(folder)

    @cached_property
    def _state(self) -> Path:
        file = self._folder / "version.db"
        self._table.state.copy_version(self._version, file)
        return file

    @cached_property
    def _time_ms(self) -> int:
        with self._table.state.reading(self._version) as state:
            return state.version_time_ms

    def _keep_version(self) -> None:
        """Keeps the files of the version until the transaction ends."""
        if self._is_held:
            return
        instance = self._table.instance
        seconds = self._engine.settings.hold_seconds
        owner = f"transaction on {self._table.ref.name}"
        hold = VersionHold(self._table.state, self._version, seconds, instance.clock, owner)
        hold.acquire()
        self._resources.callback(hold.release)
        self._is_held = True
