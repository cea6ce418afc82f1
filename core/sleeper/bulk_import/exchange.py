"""Pieces: what the tasks that read hand to the tasks that write.

A split is read in chunks that fit into memory. Each chunk is sorted and cut at the slots'
ranges, so a slot gets runs of sorted rows as Arrow messages: few and large, so that the
cluster moves bytes and never rows. Which task gets a row follows from its key and its place
in the input alone, so a task that runs again hands over the same rows.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sleeper.bulk_import.slots import Slot
from sleeper.bulk_import.splits import InputSplit, read_split
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.session import EngineSettings
from sleeper.datafiles.merge.sort import sort_batches
from sleeper.datafiles.write.file import FileSettings
from sleeper.datafiles.write.partitioned import FileStrategy, WriteTarget, write_sorted
from sleeper.datafiles.write.route import RangeRouter
from sleeper.json_codec import JsonCodec
from sleeper.schema.model import Schema
from sleeper.statestore.transactions.add_files import NewFile
from sleeper.storage.location import DataRoot

_NEW_FILE = JsonCodec(NewFile)


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
    """Returns the file as a task sends it to the driver."""
    return json.dumps(_NEW_FILE.to_json(new))


def new_file_from_json(text: str) -> NewFile:
    """Reads the text of `new_file_to_json`."""
    return _NEW_FILE.from_json(json.loads(text), "new file")


# Of the memory: what is read, its sorted copy, and what the engine takes to sort it.
_CHUNKS_IN_MEMORY = 8
_PIECE_BYTES_MAX = 4 * 1024**2


@dataclass(frozen=True, slots=True)
class Piece:
    """Sorted rows for a task, as one Arrow message of the table's Arrow schema."""

    task: int
    rows: int
    body: pa.Buffer


def cut_split(
    number: int, split: InputSplit, schema: Schema, slots: Sequence[Slot], engine: EngineSettings
) -> Iterator[Piece]:
    """The pieces of a split. `number` is its place among all splits.

    InvalidRequestError names the file, row and field that do not fit.
    """
    router = RangeRouter([slot.within for slot in slots])
    chunk_bytes = engine.memory_bytes // _CHUNKS_IN_MEMORY
    for turn, chunk in enumerate(_chunks(read_split(split, schema), chunk_bytes), start=number):
        for place, rows in _runs(sort_batches(iter(chunk), schema, engine), router):
            task = slots[place].task_of(turn)
            for part in _parts(rows, schema):
                yield Piece(task, part.num_rows, part.serialize())


def rows_of_pieces(bodies: Iterable[pa.Buffer], schema: Schema) -> Iterator[pa.RecordBatch]:
    """The rows of pieces' bodies."""
    target = arrow_schema(schema)
    for body in bodies:
        yield pa.ipc.read_record_batch(body, target)


def _chunks(batches: Iterator[pa.RecordBatch], bytes_max: int) -> Iterator[list[pa.RecordBatch]]:
    chunk: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        chunk.append(batch)
        size += batch.nbytes
        if size >= bytes_max:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _runs(batches: Iterator[pa.RecordBatch], router: RangeRouter) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each range, in key order, where they came in many batches."""
    place = -1
    run: list[pa.RecordBatch] = []
    for batch in batches:
        for at, rows in router.route(batch):
            if at != place and run:
                yield place, pa.Table.from_batches(run)
                run = []
            place = at
            run.append(rows)
    if run:
        yield place, pa.Table.from_batches(run)


def _parts(run: pa.Table, schema: Schema) -> Iterator[pa.RecordBatch]:
    """The run in parts of bounded size, of plain columns: views keep more than their own rows."""
    plain = run.cast(arrow_schema(schema)).combine_chunks()
    rows = max(1, _PIECE_BYTES_MAX * plain.num_rows // max(plain.nbytes, 1))
    yield from plain.to_batches(rows)
