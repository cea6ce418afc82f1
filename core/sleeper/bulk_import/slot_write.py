"""Writes a slot's rows as data files of its leaves, and says what it wrote."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sleeper.bulk_import.slots import Slot
from sleeper.datafiles.location import DataRoot
from sleeper.datafiles.partitioned_write import FileStrategy, WriteTarget, write_sorted
from sleeper.datafiles.session import EngineSettings
from sleeper.datafiles.sort import sort_batches
from sleeper.datafiles.writer import FileSettings
from sleeper.schema.model import Schema
from sleeper.statestore.transactions.add_files import NewFile
from sleeper.statestore.transactions.file_json import file_from_json, file_to_json


@dataclass(frozen=True, slots=True)
class SlotTarget:
    """The table that slots are written to, and the run that writes them."""

    root: DataRoot
    table_id: str
    schema: Schema
    run_start_ms: int
    files: FileSettings


def write_slot(
    slot: Slot, batches: Iterator[pa.RecordBatch], target: SlotTarget, engine: EngineSettings
) -> Iterator[NewFile]:
    """The files of a slot's rows, which come in any order. Every run has file names of its own."""
    write = WriteTarget(
        target.root,
        target.table_id,
        target.schema,
        slot.leaves,
        target.run_start_ms,
        target.files,
        engine.threads,
    )
    ordered = sort_batches(batches, target.schema, engine)
    for written in write_sorted(ordered, write, FileStrategy.ONE_FILE_PER_LEAF):
        yield NewFile(written.file, tuple((r.partition_id, r.rows) for r in written.references))


def new_file_to_json(new: NewFile) -> str:
    """As it goes to the driver."""
    references = [list(reference) for reference in new.rows_by_partition]
    return json.dumps({**file_to_json(new.file), "references": references})


def new_file_from_json(text: str) -> NewFile:
    """Reads what `new_file_to_json` wrote."""
    raw = json.loads(text)
    return NewFile(file_from_json(raw), tuple((p, rows) for p, rows in raw["references"]))
