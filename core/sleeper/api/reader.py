"""A reader of one version of a table."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from sleeper.api.results import Rowset
from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.instance import OpenTable
from sleeper.query.changes.plan import find_changes
from sleeper.query.hold import VersionHold
from sleeper.query.plan import check_has_rows
from sleeper.query.run import RESTARTS
from sleeper.query.sql.parameters import Parameters
from sleeper.query.sql.service import open_sql
from sleeper.query.sql.tables import parse_as_of
from sleeper.retries import retry

if TYPE_CHECKING:
    from sleeper.api.table import Table
    from sleeper.api.table_versions import AsOf


class TableReader:
    """A table at one version, which stays readable until the reader is closed or refreshed.

    `version` is the number of the transaction that is read, a value for `as_of`. All queries of the
    reader see the same rows, whatever is ingested, compacted or loaded meanwhile. A hold keeps the
    version, and a thread renews it; if the process dies, the hold expires. Rows of a query that are
    still read when the reader is refreshed or closed are those of their version. It is a context
    manager.
    """

    def __init__(self, table: "Table", opened: OpenTable) -> None:
        self._table = table
        self._opened = opened
        self._hold: VersionHold | None
        self._version, self._hold = _hold_newest(opened)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def version(self) -> int:
        """The number of the transaction that is read, a value for `as_of`."""
        return self._version

    def query(
        self,
        keys: Iterable[Sequence[object]] = (),
        ranges: Iterable[tuple[object | None, object | None]] = (),
        regions: Iterable[Mapping[str, Any]] = (),
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        filters: str = "",
        aggregations: str = "",
        iterator: str | None = None,
        iterator_config: str = "",
    ) -> Rowset:
        """Returns rows of the version. Arguments and errors are those of `Table.query`.

        Also raises `InvalidRequestError` if the reader is closed.
        """
        self._check_open()
        return self._table.query(
            keys=keys,
            ranges=ranges,
            regions=regions,
            columns=columns,
            limit=limit,
            as_of=self._version,
            filters=filters,
            aggregations=aggregations,
            iterator=iterator,
            iterator_config=iterator_config,
        )

    def sql(
        self,
        statement: str,
        params: Parameters | None = None,
        *,
        as_of: "Mapping[str, AsOf] | None" = None,
    ) -> Rowset:
        """Runs one SELECT statement, which reads the table at the version.

        Other tables are read at their newest versions, or at those of `as_of`, by name. `params`
        and errors are
        those of `Instance.sql`, and `InvalidRequestError` if the reader is closed or `as_of` names
        its table.
        """
        self._check_open()
        name = self._table.name
        if as_of is not None and name in as_of:
            raise InvalidRequestError(
                f"as_of names table {name!r} (expected other tables: the reader's is read at "
                f"version {self._version})"
            )
        versions = parse_as_of({name: self._version, **(as_of or {})})
        instance = self._opened.instance
        return Rowset(open_sql(instance, statement, as_of=versions, parameters=params))

    def refresh(self) -> bool:
        """Reads the newest version from now on. Returns whether rows or schema have changed.

        Otherwise, and after an error, the reader keeps its version.
        """
        self._check_open()
        if not self._has_changed():
            return False
        version, hold = _hold_newest(self._opened)
        before, self._hold = self._hold, hold
        if before is not None:
            before.release()
        self._version = version
        return True

    def close(self) -> None:
        """Releases the version."""
        if self._hold is not None:
            self._hold.release()
            self._hold = None

    def _has_changed(self) -> bool:
        with self._opened.state.reading() as state:
            try:
                before = state.at(self._version)
                changes = find_changes(state, self._version, state.number, 1)
            except InvalidRequestError:
                return True  # the hold expired, so the version may be gone
            return bool(changes) or (before.schema, before.processing) != (
                state.schema,
                state.processing,
            )

    def _check_open(self) -> None:
        if self._hold is None:
            raise InvalidRequestError(f"the reader of table {self._table.name!r} is closed")


def _hold_newest(table: OpenTable) -> tuple[int, VersionHold]:
    """Returns the newest version and its hold. InvalidRequestError if it has no rows to read."""
    instance, owner = table.instance, f"reader of {table.ref.name}"
    seconds = instance.queries.engine().settings.hold_seconds

    def attempt() -> tuple[int, VersionHold]:
        with table.state.reading() as state:
            check_has_rows(table.ref.name, state)
            version = int(state.number)
        hold = VersionHold(table.state, version, seconds, instance.clock, owner)
        hold.acquire()
        return version, hold

    # The version may expire before it is held.
    return retry(attempt, on=StateMovedOnError, backoff=RESTARTS)
