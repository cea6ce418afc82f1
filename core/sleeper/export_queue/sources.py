"""The exports of a queue after its position, from the log or from the files of its table."""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from sleeper.errors import DataError, NotFoundError, StateMovedOnError
from sleeper.export_queue.changed_keys import ChangedKeys, numbered_exports
from sleeper.export_queue.changed_rows import (
    add_change,
    add_compaction,
    add_replacement,
    add_version,
)
from sleeper.export_queue.definition import ExportQueue, ExportSource
from sleeper.export_queue.rows import rows_schema
from sleeper.export_queue.store import Position
from sleeper.export_queue.table_reader import TableReader, bind_columns
from sleeper.export_queue.transactions import ExportRows, QueueExports
from sleeper.export_queue.version_hold import QueueHold
from sleeper.instance import OpenTable
from sleeper.query.changes.plan import PlannedChange, plan_step
from sleeper.statestore.log import LogEntry
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.codec import decode_line

_COMPACTIONS_PER_STEP = 100
# More files are merged in several passes.
_GROUP_FILES_MAX = 50
_GROUP_BYTES_MAX = 2 * 1024**2
_GROUP_MEMORY_BYTES_MAX = 32 * 1024**2
# Exports of entries that are in memory at once. An entry may have megabytes of them.
_ENTRIES_PER_STEP = 1_000
_BYTES_PER_STEP = 8 * 1024**2
_ENTRIES_PER_READ = 20
_MARK = f'"kind":"{ExportRows.kind}"'


@dataclass(frozen=True, slots=True)
class Exports:
    """Exports, None for none, and the position of a queue that has them."""

    rows: pa.RecordBatch | None
    to: Position


@dataclass
class QueueSource:
    """The exports of one queue. `generation` is the number of the transaction that created it.

    `problems` are what the queue's owner should know, each once.
    """

    table: OpenTable
    queue: ExportQueue
    generation: int

    def __post_init__(self) -> None:
        self.problems: dict[str, None] = {}
        self.hold = QueueHold(self.table, self.queue.name)

    def read(self, position: Position, end: int) -> Generator[Exports, None, None]:
        """Yields the exports after the position, up to the transaction `end`, in order.

        DataError if they cannot be exported without a change of the queue or table.
        """
        if self.queue.source is ExportSource.TRANSACTION:
            yield from self._read_logged(position, end)
            return
        if self.queue.existing_rows and position.number < self.generation:
            yield from self._read_existing(position)
            position = Position(self.generation)
        is_compaction = self.queue.source is ExportSource.COMPACTION
        yield from (self._read_compactions if is_compaction else self._read_changes)(position, end)

    def _read_logged(self, position: Position, end: int) -> Iterator[Exports]:
        number = position.number
        while number < end:
            try:
                logged = read_exports(self.table.state, number)
            except NotFoundError as error:
                raise DataError(
                    f"export queue {self.queue.name!r} lost exports: {error}"
                ) from error
            for each in logged.exports:
                for exports in each.queues:
                    if (exports.queue, exports.generation) == (self.queue.name, self.generation):
                        rows = self._decode(exports.rows, each.number)
                        yield Exports(rows, Position(number))
            # Entries are captured as a whole: the log is read after the end of one.
            number = logged.end
            yield Exports(None, Position(number))

    def _decode(self, content: bytes, number: int) -> pa.RecordBatch:
        """Returns the rows that a transaction attached, with its number."""
        target = rows_schema(self.queue)
        try:
            with pa.ipc.open_stream(content) as reader:
                table = reader.read_all().combine_chunks()
            columns = [table.column(field.name).combine_chunks() for field in list(target)[1:]]
            sequence = pa.repeat(pa.scalar(number, pa.int64()), table.num_rows)
            return pa.RecordBatch.from_arrays([sequence, *columns], schema=target)
        except (pa.ArrowException, KeyError, OSError) as error:
            raise DataError(
                f"export queue {self.queue.name!r}: the exports of transaction {number} are "
                f"damaged: {error}"
            ) from error

    def _read_existing(self, position: Position) -> Iterator[Exports]:
        number = self.generation
        if not self.hold.keep(number):
            yield Exports(None, Position(number))
            return
        reader = self._reader_at(number)
        yield from self._keys(number, position, partial(add_version, reader, number))

    def _read_changes(self, position: Position, end: int) -> Iterator[Exports]:
        number = position.number
        self.hold.keep(number)
        while number < end:
            with self.table.state.reading(stale=True) as state:
                step = plan_step(state, number, end)
            for changes in self._group_ingests(step.changes, position):
                together = self._read_ingests(changes) if len(changes) > 1 else None
                if together is not None:
                    yield together
                    continue
                for change in changes:
                    yield from self._read_change(change, number, position)
            number = step.end
            yield Exports(None, Position(number))

    def _group_ingests(
        self, changes: Sequence[PlannedChange], position: Position
    ) -> Iterator[list[PlannedChange]]:
        """Yields the changes in order, those of adjacent small ingests together."""
        with self.table.state.reading(stale=True) as state:
            schemas = [state.schema_at(change.number) for change in changes]
        group: list[PlannedChange] = []
        files = size = version = 0
        for change, schema in zip(changes, schemas, strict=True):
            scans = [scan for leaf in change.leaves for scan in leaf.scans]
            more = sum(scan.file.bytes for scan in scans)
            is_ingest = not (change.is_replacement or change.regions or change.key_files)
            is_small = is_ingest and schema.latest is None and change.number > position.number + 1
            fits = files + len(scans) <= _GROUP_FILES_MAX and size + more <= _GROUP_BYTES_MAX
            if group and not (is_small and fits and version == schema.version):
                yield group
                group, files, size = [], 0, 0
            if is_small and fits:
                group.append(change)
                files, size, version = files + len(scans), size + more, schema.version
            else:
                yield [change]
        if group:
            yield group

    def _read_ingests(self, changes: Sequence[PlannedChange]) -> Exports | None:
        """Returns the exports of small ingests, which takes as long as one of them alone.

        None if they are large in memory: small files may have many rows, or rows that compress.
        """
        last = changes[-1].number
        leaves = tuple(leaf for change in changes for leaf in change.leaves)
        rows, size = [], 0
        for batch in self._reader_at(last).read_numbered(leaves, last):
            rows.append(batch)
            size += batch.nbytes
            if size > _GROUP_MEMORY_BYTES_MAX:
                return None
        exports = numbered_exports(self.queue, pa.Table.from_batches(rows)) if rows else None
        return Exports(exports, Position(last))

    def _read_change(
        self, change: PlannedChange, before: int, position: Position
    ) -> Iterator[Exports]:
        reader, number = self._reader_at(change.number), change.number
        if not change.is_replacement:
            add = partial(add_change, reader, self.table.instance, change)
            yield from self._keys(number, position, add)
        elif self.hold.keep(number):
            former = self._find_former(number, before)
            add = partial(add_replacement, reader, number, former)
            yield from self._keys(number, position, add)

    def _find_former(self, number: int, before: int) -> int | None:
        """Returns the version with which the one of the number is compared, None for no rows."""
        if not self.hold.is_needed:
            return number - 1
        try:
            return self.hold.find_former(number, before)
        except StateMovedOnError as error:
            if before <= self.generation:
                return None  # nothing has been exported yet
            self.problems[f"keys gone by transaction {number} are not exported: {error}"] = None
            return None

    def _read_compactions(self, position: Position, end: int) -> Iterator[Exports]:
        number = position.number
        while number < end:
            with self.table.state.reading(stale=True) as state:
                state.check_changes_after(number)
                compactions = state.changes.compactions(number, end, _COMPACTIONS_PER_STEP)
            for each in compactions:
                reader = self._reader_at(each.number)
                yield from self._keys(each.number, position, partial(add_compaction, reader, each))
            number = compactions[-1].number if len(compactions) == _COMPACTIONS_PER_STEP else end
            yield Exports(None, Position(number))

    def _reader_at(self, number: int) -> TableReader:
        with self.table.state.reading(stale=True) as state:
            created, schema = state.schema_at(self.generation), state.schema_at(number)
        columns = bind_columns(self.queue, created, schema)
        if columns.problem is not None:
            self.problems[columns.problem] = None
        return TableReader(self.table, columns)

    def _keys(
        self, number: int, position: Position, add: Callable[[ChangedKeys], None]
    ) -> Iterator[Exports]:
        """Yields the exports of a transaction, those of a large one by ranges of buckets."""
        before = Position(number - 1)
        first = position.bucket if position.number == before.number else 0
        engine = self.table.instance.queries.engine().settings.engine
        with ChangedKeys(self.queue, number, engine, first) as keys:
            add(keys)
            for part in keys.parts():
                is_last = part.bucket == self.queue.buckets
                to = Position(number) if is_last else Position(before.number, part.bucket)
                yield Exports(part.rows, to)
        yield Exports(None, Position(number))


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
    exports: list[LoggedExport] = []
    end, entries, size = after, 0, 0
    while entries < _ENTRIES_PER_STEP and size < _BYTES_PER_STEP:
        page = store.read_entries(end, _ENTRIES_PER_READ)
        for entry in page:
            exports += _exports_of_entry(entry)
            end, size = entry.last_number, size + len(entry.body)
        entries += len(page)
        if len(page) < _ENTRIES_PER_READ:
            break
    return LoggedExports(end, tuple(exports))


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
