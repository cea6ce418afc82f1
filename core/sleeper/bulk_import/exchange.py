"""The exchange of rows between reading and writing tasks.

The rows of a split are distributed over the slots, in *pieces*: rows of one slot as few, large
Arrow messages, so that the cluster moves bytes instead of rows. Pieces are in no order, because the
task that receives them sorts all of its rows anyway. The key of a row and its place in the input
determine its task, so a repeated task makes the same pieces.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.bulk_import.slots import Slot
from sleeper.bulk_import.splits import InputSplit, read_split
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.expression import rank_sort_keys
from sleeper.datafiles.engine.settings import EngineSettings, make_spill_folder
from sleeper.datafiles.merge.first_of_key import keep_first, refuse_ties
from sleeper.datafiles.merge.sort import sort_batches
from sleeper.datafiles.write.file import FileSettings
from sleeper.datafiles.write.partitioned import FileStrategy, WriteTarget, write_sorted
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
    make_spill_folder(engine.spill_folder)
    write = WriteTarget(
        target.root,
        target.table_id,
        target.schema,
        slot.leaves,
        target.run_start_ms,
        target.files,
        engine.threads,
        engine.spill_folder,
    )
    schema = target.schema
    if schema.latest is None:
        ordered = sort_batches(batches, schema, engine)
    else:
        in_order = sort_batches(batches, schema, engine, rank_sort_keys(schema, has_number=False))
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


# The rows that wait for their piece to be full share the memory with those that are read.
_WAITING_SHARE = 8
# A piece has at most twice as many, before it is compressed.
_PIECE_BYTES = 1024**2
_COPIED_BYTES_MAX = _PIECE_BYTES // 4


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows for a task as an Arrow stream of the table's Arrow schema."""

    task: int
    rows: int
    body: pa.Buffer


def cut_split(
    number: int, split: InputSplit, schema: Schema, slots: Sequence[Slot], engine: EngineSettings
) -> Iterator[Piece]:
    """Yields the pieces of a split. `number` is its place among all splits.

    InvalidRequestError names the file, row and field that do not fit.
    """
    waiting = [_Waiting() for _ in slots]
    size = 0
    starts = pa.array([slot.within.min for slot in slots[1:]], arrow_schema(schema).field(0).type)
    for batch in read_split(split, schema):
        for position, rows in distribute(batch, starts):
            waiting[position].add(rows)
            size += rows.nbytes
            if waiting[position].size >= _PIECE_BYTES:
                size -= waiting[position].size
                yield from waiting[position].pieces(slots[position], number)
        if size >= engine.memory_bytes // _WAITING_SHARE:
            size = 0
            for slot, each in zip(slots, waiting, strict=True):
                yield from each.pieces(slot, number)
    for slot, each in zip(slots, waiting, strict=True):
        yield from each.pieces(slot, number)


def rows_of_pieces(bodies: Iterable[pa.Buffer], schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yields the rows of pieces' bodies."""
    target = arrow_schema(schema)
    for body in bodies:
        for batch in pa.ipc.open_stream(body):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=target)


@dataclass(slots=True)
class _Waiting:
    """The rows of a slot that no piece has yet. `turn` counts the pieces that were made."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    size: int = 0
    turn: int = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self.batches.append(rows)
        self.size += rows.nbytes

    def pieces(self, slot: Slot, number: int) -> Iterator[Piece]:
        """Yields the rows, if any, in pieces of bounded size. The tasks of a slot take turns."""
        batches, self.batches, self.size = self.batches, [], 0
        for part in _parts(batches):
            yield Piece(slot.task_of(number + self.turn), part.num_rows, _to_stream(part))
            self.turn += 1


# The cluster takes longer to move bytes than LZ4 takes to save them.
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


def _to_stream(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_COMPRESSED) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _parts(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the rows in batches of bounded size. Only small batches are copied."""
    small = [batch for batch in batches if batch.nbytes < _COPIED_BYTES_MAX]
    large = [batch for batch in batches if batch.nbytes >= _COPIED_BYTES_MAX]
    for batch in [*large, *([pa.concat_batches(small)] if small else [])]:
        step = -(-batch.num_rows // max(1, batch.nbytes // _PIECE_BYTES))
        yield from (batch.slice(start, step) for start in range(0, batch.num_rows, step))


def distribute(batch: pa.RecordBatch, starts: pa.Array) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields the rows of each slot. `starts` are the ranges' starts, ascending, without the first.

    The slot of each row is found by a binary search, of all rows at once.
    """
    positions = count_not_after(batch.column(0), starts)
    counts = np.bincount(positions, minlength=len(starts) + 1)
    ends = np.cumsum(counts)
    if (positions[1:] >= positions[:-1]).all():
        for position in np.flatnonzero(counts).tolist():
            yield position, batch.slice(ends[position] - counts[position], counts[position])
        return
    order = np.argsort(positions, kind="stable")
    for position in np.flatnonzero(counts).tolist():
        # A copy of each, because rows that wait must not keep the whole batch.
        yield (
            position,
            batch.take(pa.array(order[ends[position] - counts[position] : ends[position]])),
        )


def count_not_after(keys: pa.Array, starts: pa.Array) -> npt.NDArray[Any]:
    """Returns for each key the number of starts that are not greater, by a binary search."""
    result = np.zeros(len(keys), np.int32)
    step = 1 << max(len(starts).bit_length() - 1, 0)
    while step and len(starts):
        probed = result + (step - 1)
        is_inside = probed < len(starts)
        candidates = starts.take(pa.array(np.minimum(probed, len(starts) - 1)))
        is_reached = pc.greater_equal(keys, candidates).to_numpy(zero_copy_only=False)
        result += np.where(is_reached & is_inside, step, 0).astype(np.int32)
        step //= 2
    # The sort of 16 bit numbers takes linear time.
    return result.astype(np.uint16 if len(starts) < 2**16 else np.int32)
