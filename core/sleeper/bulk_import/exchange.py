"""The exchange of rows between reading and writing tasks.

A split is read in chunks that fit into memory. Each chunk is sorted and cut at the slots' ranges
into *pieces*: sorted rows as few, large Arrow messages, so that the cluster moves bytes instead
of rows. The key of a row and its place in the input determine its task, so a repeated task makes
the same pieces.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sleeper.bulk_import.slots import Slot
from sleeper.bulk_import.splits import InputSplit, read_split
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.session import EngineSettings
from sleeper.datafiles.merge.latest import keep_first, rank_order, refuse_ties
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
    """The target table and the run of the import."""

    root: DataRoot
    table_id: str
    schema: Schema
    run_start_ms: int
    files: FileSettings


def write_slot(
    slot: Slot, batches: Iterator[pa.RecordBatch], target: SlotTarget, engine: EngineSettings
) -> Iterator[NewFile]:
    """Sorts and writes a slot's rows. Yields the files, whose names differ in every run.

    Of latest rows, the newest of each key. InvalidRequestError if none of them is.
    """
    write = WriteTarget(
        target.root,
        target.table_id,
        target.schema,
        slot.leaves,
        target.run_start_ms,
        target.files,
        engine.threads,
    )
    schema = target.schema
    if schema.latest is None:
        ordered = sort_batches(batches, schema, engine)
    else:
        in_order = sort_batches(batches, schema, engine, rank_order(schema, has_number=False))
        columns = [field.name for field in schema.fields]
        ordered = keep_first(refuse_ties(in_order, schema), schema, columns)
    for written in write_sorted(ordered, write, FileStrategy.ONE_FILE_PER_LEAF):
        yield NewFile(written.file, tuple((r.partition_id, r.rows) for r in written.references))


def new_file_to_json(new: NewFile) -> str:
    """Returns the file as a task sends it to the driver."""
    return json.dumps(_NEW_FILE.to_json(new))


def new_file_from_json(text: str) -> NewFile:
    """Reads the text of `new_file_to_json`."""
    return _NEW_FILE.from_json(json.loads(text), "new file")


# The rows read, their sorted copy and the engine's sort share the memory.
_CHUNKS_IN_MEMORY = 8
_PIECE_BYTES_MAX = 4 * 1024**2


@dataclass(frozen=True, slots=True)
class Piece:
    """Sorted rows for a task as one Arrow message of the table's Arrow schema."""

    task: int
    rows: int
    body: pa.Buffer


def cut_split(
    number: int, split: InputSplit, schema: Schema, slots: Sequence[Slot], engine: EngineSettings
) -> Iterator[Piece]:
    """Yields the pieces of a split. `number` is its place among all splits.

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
    """Yields the rows of pieces' bodies."""
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
    """Yields the rows of each range in key order."""
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
    """Cuts a run into parts of bounded size. Columns are plain, because views keep other rows."""
    plain = run.cast(arrow_schema(schema)).combine_chunks()
    rows = max(1, _PIECE_BYTES_MAX * plain.num_rows // max(plain.nbytes, 1))
    yield from plain.to_batches(rows)
