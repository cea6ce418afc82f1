"""A table as input: its rows at a version, and the changes after it.

The value of a key is its last row in the order of the table, as a query returns it at the version.
So a store that followed the changes up to a version equals one that was loaded from it.
"""

import hashlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa

from sleeper.adjunct.contents.writers import MakeRowWriter, RowWriter
from sleeper.adjunct.definition import Layout
from sleeper.adjunct.engines.engine import Writes
from sleeper.adjunct.inputs.dataset import Dataset, LayoutSource
from sleeper.adjunct.inputs.opening import InputRequest
from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.instance import Instance, OpenTable
from sleeper.partitions.region import Region, whole_region
from sleeper.query.changes.plan import Operation
from sleeper.query.changes.read import Change
from sleeper.query.changes.reader import ChangeReader, ChangesRequest
from sleeper.query.engine import QueryEngine
from sleeper.query.hold import VersionHold, take_shared_hold
from sleeper.query.request import Query, make_key_regions
from sleeper.query.row_keys import RowKeys
from sleeper.query.run import run_query
from sleeper.query.service import make_query_table
from sleeper.schema.model import Schema, schema_to_json
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.transactions.codec import kinds_of
from sleeper.statestore.transactions.transaction import Subject

_TABLE = "table"
_NUMBER = "number"


@dataclass(frozen=True, slots=True)
class TransactionWrites:
    """The changes of one transaction. `writes` must be taken before the next transaction.

    None means that the transaction replaced all rows. `layout` is as of a `Dataset`.
    """

    number: int
    writes: Iterator[Writes] | None
    layout: LayoutSource


@dataclass(frozen=True, slots=True)
class TableShape:
    """What makes rows of one version comparable to those of another: the fields and processing.

    `is_direct` means that the rows that a transaction wrote are those that a query returns.
    """

    schema: Schema
    digest: str
    is_direct: bool


@dataclass(frozen=True, slots=True)
class Inspection:
    """The newest transaction of a table and its shape. `problem` is why a store cannot follow.

    `behind` is how many transactions after the store's position changed rows.
    """

    problem: str | None
    newest: int
    behind: int
    shape: TableShape


class TableInput:
    """A table of an instance. It implements `DatasetInput`; a dataset is named by its number."""

    def __init__(
        self, instance: Instance, table_name: str, make_writer: MakeRowWriter, owner: str
    ) -> None:
        self._instance = instance
        self._table = instance.table(table_name)
        self._make_writer = make_writer
        self._owner = owner
        with self._table.state.reading() as state:
            self.is_snapshot_table = state.is_snapshot_table
        engine = instance.queries.engine()
        # The limits of queries do not apply: a store has all rows.
        settings = replace(engine.settings, rows_max=0, seconds_max=0, bytes_max=0)
        self._engine = QueryEngine(settings, engine.clock)

    @property
    def table(self) -> OpenTable:
        return self._table

    def newest(self) -> str | None:
        """See the protocol. For a snapshot table, the number since which its rows are the same."""
        self._find_table()
        with self._table.state.reading() as state:
            if not self.is_snapshot_table:
                return str(state.number)
            number = state.snapshots.find_change(state.number)
            return str(number) if number else None

    def is_current(self, positions: Mapping[str, str]) -> bool:
        """See the protocol. False if the table was deleted and created again."""
        return positions.get(_TABLE) == str(self._table.ref.id)

    def newest_number(self) -> int:
        """Returns the number of the newest transaction."""
        self._find_table()
        with self._table.state.reading() as state:
            return int(state.number)

    def shape(self, number: int | None = None) -> TableShape:
        """Returns the fields and processing at a version, by default the newest."""
        with self._table.state.reading(number) as state:
            return _find_shape(state)

    @contextmanager
    def open(self, dataset: str) -> Iterator[Dataset]:
        """See the protocol. The version is held while it is read."""
        number = int(dataset)
        seconds = self._engine.settings.hold_seconds
        hold = VersionHold(self._table.state, number, seconds, self._instance.clock, self._owner)
        hold.acquire()
        try:
            writer = self._make_writer(self.shape(number).schema)
            writer.origin = dataset
            rows = self._read(number)
            try:
                yield Dataset(
                    dataset,
                    writer.put_all(rows),
                    writer.layout,
                    writer.is_sorted,
                    self.positions(number),
                )
            finally:
                rows.close()
        except InvalidRequestError as error:
            # A version of a snapshot table may expire before it is held.
            raise StateMovedOnError(str(error)) from error
        finally:
            hold.release()

    def keep(self, dataset: str, owner: str) -> None:
        """Keeps a dataset from deletion for some time, also if this process ends.

        StateMovedOnError if it may be deleted already.
        """
        store, seconds = self._table.state, self._engine.settings.hold_seconds
        take_shared_hold(store, int(dataset), seconds, self._instance.clock, owner)

    def positions(self, number: int) -> dict[str, str]:
        """Returns the positions of a store that has all changes up to the number."""
        return {_TABLE: str(self._table.ref.id), _NUMBER: str(number)}

    @staticmethod
    def number_of(positions: Mapping[str, str]) -> int | None:
        """Returns the transaction number of positions, None if there is none."""
        text = positions.get(_NUMBER, "")
        return int(text) if text.isdecimal() else None

    def layout(self, number: int | None = None) -> Layout | None:
        """Returns the form of keys and values at a version, by default the newest."""
        return self._make_writer(self.shape(number).schema).layout()

    def find_problem(self, positions: Mapping[str, str]) -> str | None:
        """Returns why changes after the positions cannot be read; None if they can."""
        with self._table.state.reading() as state:
            return self._find_problem(positions, state)

    def inspect(self, positions: Mapping[str, str]) -> Inspection:
        """Returns what became of the table since the positions, by one read of its log."""
        self._find_table()
        with self._table.state.reading() as state:
            problem = self._find_problem(positions, state)
            number = self.number_of(positions) or 0
            behind = state.history.count(kinds_of(Subject.ROWS), number, state.number)
            return Inspection(problem, int(state.number), behind, _find_shape(state))

    def _find_table(self) -> None:
        """Finds the table of the name, which may be another one now. NotFoundError if none is."""
        self._table = self._instance.table(self._table.ref.name)

    def _find_problem(self, positions: Mapping[str, str], state: TableState) -> str | None:
        name = self._table.ref.name
        number = self.number_of(positions)
        if number is None:
            return "it has no position in the table's log"
        if positions.get(_TABLE) != str(self._table.ref.id):
            return f"table {name!r} was deleted and created again"
        if number > state.number:
            return (
                f"table {name!r} went back: its newest transaction is {state.number}, and the "
                f"store is at {number}"
            )
        if not state.keeps_changes_after(number):
            return (
                f"table {name!r} keeps changes from transaction {state.horizon + 1} on, and the "
                f"store is at {number}"
            )
        return None

    def changes(
        self, positions: Mapping[str, str], digest: str | None, last: int | None = None
    ) -> Generator[TransactionWrites, None, None]:
        """Yields the changes after the positions, up to the last transaction, or to the newest.

        StateMovedOnError if the changes are not kept any more, or if the table has not the shape of
        the digest, also because it changed meanwhile.
        """
        number = self.number_of(positions)
        assert number is not None
        shape = self.shape(last)
        writer = self._make_writer(shape.schema)
        request = ChangesRequest(first=number + 1, last=last)
        try:
            with ChangeReader(self._table, request) as reader:
                if shape.digest != digest or reader.schema != shape.schema:
                    raise StateMovedOnError("the table's fields or processing changed")
                for changed, group in groupby(reader, attrgetter("number")):
                    first, changes = _peek(group)
                    if first.operation == Operation.REPLACE:
                        yield TransactionWrites(changed, None, writer.layout)
                        return
                    writer.origin = str(changed)
                    writes = self._transaction(shape, writer, changed, changes)
                    yield TransactionWrites(changed, writes, writer.layout)
        except InvalidRequestError as error:
            raise StateMovedOnError(str(error)) from error

    def find(self, positions: Mapping[str, str], keys: Sequence[Any]) -> Iterator[Writes]:
        """Yields the writes of the rows of keys at the version of positions, which is not held.

        StateMovedOnError if the version cannot be read any more.
        """
        table, number = self._table, self.number_of(positions)
        if positions.get(_TABLE) != str(table.ref.id):
            raise StateMovedOnError(f"table {table.ref.name!r} was deleted and created again")
        try:
            with table.state.reading(number) as state:
                schema = state.schema
            tuples = [key if isinstance(key, tuple) else (key,) for key in keys]
            query = Query(tuple(make_key_regions(schema, tuples)), version=number)
            writer = self._make_writer(schema)
            with run_query(query, make_query_table(table), self._engine) as result:
                for batch in result:
                    yield from writer.put(batch)
        except InvalidRequestError as error:
            raise StateMovedOnError(str(error)) from error

    def _read(
        self, number: int, regions: Sequence[Region] | None = None
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yields the rows of regions at a version, None for all, as a query returns them."""
        query = Query(None if regions is None else tuple(regions), version=number)
        table = make_query_table(self._table)
        with run_query(query, table, self._engine, is_held=True) as result:
            for batch in result:
                if batch.num_rows:
                    yield batch

    def _transaction(
        self, shape: TableShape, writer: RowWriter, number: int, changes: Iterable[Change]
    ) -> Iterator[Writes]:
        """Yields the writes of a transaction."""
        touched = RowKeys(shape.schema, [whole_region(shape.schema)])
        has_touched = False
        for change in changes:
            if change.operation == Operation.DELETE_REGION:
                yield from self._delete_regions(writer, number, change.deleted)
            elif change.operation == Operation.DELETE and not _has_sort_keys(shape.schema, change):
                yield from writer.delete(change.rows)
            elif shape.is_direct:
                yield from writer.put(change.rows)
            elif change.rows.num_rows:
                # The table may show another row of the key, or none.
                touched.add(change.rows)
                has_touched = True
                yield from writer.delete(change.rows)
        if has_touched:
            for rows in self._read(number, touched.regions):
                yield from writer.put(touched.filter(rows))

    def _delete_regions(
        self, writer: RowWriter, number: int, regions: Iterable[Region]
    ) -> Iterator[Writes]:
        for region in regions:
            deleted = writer.delete_region(region)
            if deleted is not None:
                yield deleted
                continue
            for rows in self._read(number - 1, (region,)):
                yield from writer.delete(rows)


def open_input(request: InputRequest) -> TableInput:
    """Opens the table of `table:NAME`."""
    owner = f"adjunct store {request.definition.name}"
    return TableInput(request.instance(), request.rest, request.make_writer, owner)


def _peek(changes: Iterator[Change]) -> tuple[Change, Iterator[Change]]:
    """Returns the first of the changes, and all of them."""
    first = next(changes)
    return first, chain([first], changes)


def _has_sort_keys(schema: Schema, change: Change) -> bool:
    """Returns whether rows to delete are named by row and sort key."""
    names = change.rows.schema.names
    return bool(schema.sort_keys) and schema.sort_keys[0].name in names


def _find_shape(state: TableState) -> TableShape:
    schema, processing = state.schema, state.processing
    latest = schema.latest
    text = "\n".join((schema_to_json(schema), state.processing_json))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    is_direct = (
        processing.keeps_rows and not schema.sort_keys and (latest is None or latest.by is None)
    )
    return TableShape(schema, digest, is_direct)
