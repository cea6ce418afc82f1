"""An ingest whose rows several processes write, such as Spark's executors.

Whoever leads *begins* it, each process *writes* a part, and the leader commits the files of
all parts under the job's id. What parts wrote that were run twice, or whose job was not
committed, are orphans.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from sleeper.datafiles.location import DataRoot
from sleeper.datafiles.partitioned_write import FileStrategy, WriteTarget, write_sorted
from sleeper.datafiles.session import EngineSettings, spill_folder
from sleeper.datafiles.sort import UnsortedRows, sort
from sleeper.datafiles.sources import RowChecker, read_batches
from sleeper.datafiles.writer import FileSettings
from sleeper.ingest.run import IngestTable, new_files
from sleeper.partitions.partition import Partition
from sleeper.schema.model import Schema
from sleeper.statestore.transactions.add_files import NewFile


@dataclass(frozen=True, slots=True)
class PartTarget:
    """What every part needs to know of the table. It is sent to the processes that write.

    A leaf that is split meanwhile keeps what is written for it until it is pushed down.
    """

    table_id: str
    schema: Schema
    leaves: tuple[Partition, ...]
    run_start_ms: int
    files: FileSettings
    strategy: FileStrategy


def begin_parts(table: IngestTable, found: pa.Schema, name: str) -> PartTarget:
    """The target for rows of that Arrow schema; `name` is what errors call them.

    InvalidRequestError if columns are missing or extra, or their types can never fit.
    """
    checker = RowChecker(table.schema, name, None)
    checker.check_columns(found.names)
    checker.check_types(found)
    with table.state.reading() as state:
        run_start_ms = state.run_start(table.clock())
        leaves = tuple(state.partitions.leaves())
    return PartTarget(
        table.table_id, table.schema, leaves, run_start_ms, table.files, table.strategy
    )


def write_part(
    target: PartTarget,
    batches: Iterable[pa.RecordBatch],
    name: str,
    root: DataRoot,
    engine: EngineSettings,
) -> tuple[NewFile, ...]:
    """Checks, casts, sorts and writes rows; none of them is in the table yet.

    InvalidRequestError names the row, counted within the part, that does not fit.
    """
    with spill_folder(engine, "ingest") as folder:
        unsorted = UnsortedRows(target.schema, folder)
        checker = RowChecker(target.schema, name, None)
        unsorted.add_batches(read_batches(iter(batches), checker))
        if not unsorted.rows:
            return ()
        where = WriteTarget(
            root,
            target.table_id,
            target.schema,
            target.leaves,
            target.run_start_ms,
            target.files,
            engine.threads,
        )
        rows = sort(unsorted, replace(engine, spill_folder=folder))
        return new_files(write_sorted(rows, where, target.strategy))
