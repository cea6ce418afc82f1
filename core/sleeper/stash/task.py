"""Does the tasks of stashes, in the process that makes a stash and in workers: writes pieces."""

from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.merge.request import Stored, with_hidden
from sleeper.datafiles.merge.steps import ProcessingStep
from sleeper.errors import DataError, NotFoundError, SleeperError, StateMovedOnError
from sleeper.instance import Instance, OpenTable
from sleeper.partitions.region import Region
from sleeper.query.engine import QueryEngine, QueryTable
from sleeper.query.request import Query
from sleeper.query.result import TimeLimit
from sleeper.query.run import make_steps, plan_table_query, query_time, read_rows, result_schema
from sleeper.query.service import make_query_table
from sleeper.schema.model import NUMBER_COLUMN, Schema
from sleeper.stash.destination import open_to_write
from sleeper.stash.documents import DocumentWriter, write_documents
from sleeper.stash.files import StashFiles
from sleeper.stash.finish import decide_failure
from sleeper.stash.layout import StashFormat
from sleeper.stash.planning import Piece, drop_table, read_task
from sleeper.stash.progress import TaskResult, add_results
from sleeper.stash.record import StashRecord, TableVersion
from sleeper.stash.versions import LostTableError, find_table
from sleeper.tables import TableId


def do_task(
    instance: Instance, record: StashRecord, table_id: TableId, number: int
) -> TaskResult | None:
    """Does a task in a worker. Returns None if it is not needed, or the stash cannot be completed.

    An error is recorded for `sleeper stash status`. NotFoundError if there is no such task.
    """
    version = next((each for each in record.versions() or () if each.id == table_id), None)
    if version is None:
        raise NotFoundError(f"stash {record.name} has no table {table_id}")
    if record.decision() is not None or record.is_done(table_id, number):
        return None
    try:
        return TaskWriter(instance, record).write(version, number)
    except LostTableError as error:
        # A task may not release holds: the control function ends the stash.
        decide_failure(instance, record, str(error))
        return None


class TaskWriter:
    """Writes the files of a stash's tasks. It may be used by several threads."""

    def __init__(self, instance: Instance, record: StashRecord) -> None:
        self._instance = instance
        self._record = record
        self._destination = open_to_write(record.request.destination, instance.storage.root)
        shared = instance.queries.engine()
        # The limits of queries do not apply to whole tables.
        settings = replace(shared.settings, rows_max=0, seconds_max=0, bytes_max=0)
        self._engine = QueryEngine(settings, shared.clock)

    @property
    def threads(self) -> int:
        """The number of tasks to do at the same time."""
        return self._engine.settings.engine.threads

    def write(self, version: TableVersion, number: int) -> TaskResult | None:
        """Writes the files of a task and records that it is done.

        Returns None if the stash ended, or the table was deleted and is omitted.
        """
        record = self._record
        table = find_table(self._instance, version)
        if table is None:
            drop_table(record, version)
            return None
        folder = f"{record.name}/{version.directory}"
        results = []
        try:
            writer = PieceWriter(
                table, version, self._engine, self._destination.root, folder, record.request.format
            )
            for piece in read_task(record, version.table_schema, version.id, number):
                if record.decision() is not None:
                    return None
                results.append(writer.write(piece))
        except Exception as error:
            if record.decision() is not None:
                return None  # a cancel deletes the file that is being written
            # Files and properties are missing also if the table was deleted.
            is_missing = isinstance(error, (NotFoundError, StateMovedOnError, DataError))
            if is_missing and find_table(self._instance, version) is None:
                drop_table(record, version)
                return None
            problem = f"table {version.table!r}: {error}"
            # The disk may be full, or the bucket away: the error of the task is the one to raise.
            with suppress(SleeperError):
                record.record_problem(version.id, number, problem)
            raise
        result = add_results(results)
        record.record_done(version.id, number, result)
        return result


@dataclass(frozen=True)
class PieceWriter:
    """Writes the pieces of a table at its version, each to a file below `folder` of `target`."""

    table: OpenTable
    version: TableVersion
    engine: QueryEngine
    target: StashFiles
    folder: str
    format: StashFormat

    @cached_property
    def _query_table(self) -> QueryTable:
        return make_query_table(self.table)

    def write(self, piece: Piece) -> TaskResult:
        """Writes the file of a piece, whole or not at all; none for a piece without rows."""
        writer = DocumentWriter(self.version.table, self.version.table_schema, self._times_of)
        with closing(self._read(piece.region)) as batches:
            first = next(batches, None)
            if first is None:
                return TaskResult()
            rows = 0
            with self.target.replacing(f"{self.folder}/{piece.file}") as sink:
                with write_documents(self.format, writer, sink) as write:
                    batch: tuple[pa.RecordBatch, pa.Array] | None = first
                    while batch is not None:
                        write(*batch)
                        rows += len(batch[0])
                        batch = next(batches, None)
                size = sink.tell()
        return TaskResult(rows, 1, size)

    def _times_of(self, numbers: Sequence[int]) -> list[int]:
        with self.table.state.reading() as newest:
            return newest.history.times(numbers)

    def _read(self, region: Region) -> Generator[tuple[pa.RecordBatch, pa.Array], None, None]:
        """Yields the rows of a region with the transaction number of each."""
        query = Query((region,), version=self.version.number)
        plan = plan_table_query(query, self._query_table)
        if not plan.leaves:
            return
        schema, engine = plan.schema, self.engine
        now_ms = query_time(plan, query, engine)
        steps = make_steps(plan, query, self._query_table.iterators, now_ms)
        has_numbers = _has_numbers(schema, steps)
        stored = Stored(has_tombstones=False) if has_numbers and schema.latest is not None else None
        read = with_hidden(schema, True, False) if has_numbers else schema
        numbered = has_numbers and stored is None
        root, limit = self.table.instance.storage.root, TimeLimit.from_now(0)
        target = arrow_schema(read)
        names = result_schema(schema, None).names
        scans = [scan for leaf in plan.leaves for scan in leaf.scans]
        newest = max(scan.file.largest_number or 0 for scan in scans)
        batches = read_rows(plan, query, root, engine, target, steps, limit, stored, numbered)
        for batch in batches:
            if has_numbers:
                yield batch.select(names), batch.column(NUMBER_COLUMN)
            else:
                yield batch, pa.repeat(pa.scalar(newest, pa.int64()), batch.num_rows)


def _has_numbers(schema: Schema, steps: tuple[ProcessingStep, ...]) -> bool:
    """Returns whether rows can be read with their numbers, which iterators do not keep."""
    is_taken = schema.latest is None and NUMBER_COLUMN in (f.name for f in schema.fields)
    return not is_taken and all(step.iterator is None for step in steps)
