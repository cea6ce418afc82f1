"""Does the tasks of stashes: in the process that makes a stash, and in workers."""

from contextlib import suppress
from dataclasses import replace

from sleeper.errors import DataError, NotFoundError, SleeperError, StateMovedOnError
from sleeper.instance import Instance
from sleeper.query.engine import QueryEngine
from sleeper.stash.destination import open_to_write
from sleeper.stash.finish import decide_failure
from sleeper.stash.piece import PieceWriter
from sleeper.stash.planning import drop_table, read_task
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
