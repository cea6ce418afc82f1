"""A Spark session as the cluster of a bulk import."""

import itertools
import json
import os
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sleeper.bulk_import.exchange import (
    cut_split,
    new_file_from_json,
    new_file_to_json,
    rows_of_pieces,
    write_slot,
)
from sleeper.bulk_import.run import Exchange
from sleeper.bulk_import.slots import slot_of_task, task_count
from sleeper.bulk_import.splits import InputSplit, SplitSample, sample_split
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.errors import UnavailableError
from sleeper.json_codec import JsonCodec
from sleeper.schema.model import Schema
from sleeper.spark.session import mark_errors, raise_task_errors
from sleeper.spark.versions import assign_by_number
from sleeper.statestore.transactions.add_files import NewFile
from sleeper.storage.location import DataRoot

# Batches between Spark and Python are cut by rows, and a piece is one of up to 4 MiB.
_PIECES_PER_BATCH = 8
_BATCH_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"
# Spark sets it for its Python workers.
_LOCAL_DIRS = "SPARK_LOCAL_DIRS"
_TEXT = "text string"
_PIECE = "task int, body binary"

_SAMPLE = JsonCodec(SplitSample)

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """Implements `sleeper.bulk_import.run.Cluster`."""

    session: SparkSession

    @property
    def parallelism(self) -> int:
        """Implements the port."""
        return max(self.session.sparkContext.defaultParallelism, 1)

    def sample(
        self, splits: Sequence[InputSplit], schema: Schema, keys_max: int
    ) -> list[SplitSample]:
        """Implements the port."""

        def sample(batches: Batches) -> Iterator[str]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    sampled = sample_split(splits[number], schema, keys_max)
                    yield json.dumps(_SAMPLE.to_json(sampled))

        with raise_task_errors():
            numbers = _numbers(self.session, len(splits))
            texts = numbers.mapInArrow(_map_texts(sample), _TEXT).collect()
        return [_SAMPLE.from_json(json.loads(row[0]), "sample") for row in texts]

    def write(self, exchange: Exchange) -> list[NewFile]:
        """Implements the port."""

        def cut(number: int) -> Iterator[pa.RecordBatch]:
            split = exchange.splits[number]
            with _task_engine(exchange.engine) as engine:
                schema = exchange.target.schema
                for piece in cut_split(number, split, schema, exchange.slots, engine):
                    yield _make_batch(piece.task, piece.body)

        def write(batches: Batches) -> Iterator[str]:
            task, batches = _split_task(batches)
            if task is None:
                return
            slot = slot_of_task(exchange.slots, task)
            rows = rows_of_pieces(_bodies(batches), exchange.target.schema)
            with _task_engine(exchange.engine) as engine:
                for new in write_slot(slot, rows, exchange.target, engine):
                    yield new_file_to_json(new)

        tasks = task_count(exchange.slots)
        with raise_task_errors():
            # A new session, because the setting must not affect other users of this one.
            own = self.session.newSession()
            own.conf.set(_BATCH_SETTING, str(_PIECES_PER_BATCH))
            pieces = _numbers(own, len(exchange.splits)).mapInArrow(_map_numbers(cut), _PIECE)
            by_task = assign_by_number(pieces, tasks, "task")
            roots = (exchange.target.root,)
            texts = by_task.mapInArrow(_map_texts(write, roots), _TEXT).collect()
        files = [new_file_from_json(row[0]) for row in texts]
        check_files(exchange.target.root, files)
        return files


def check_files(root: DataRoot, files: Sequence[NewFile]) -> None:
    """Raises UnavailableError if executors wrote to a folder of their own at the root's path."""
    if root.buckets:
        return
    for new in files:
        if not Path(root.url_of(new.file.path)).exists():
            raise UnavailableError(
                f"an executor wrote {new.file.path}, which does not exist in {root.url_of('')} on "
                f"host {socket.gethostname()} (expected a folder that all machines see)"
            )


def _numbers(session: SparkSession, count: int) -> DataFrame:
    """Returns the numbers below the count, each in its own partition."""
    return session.range(0, count, 1, count)


def _map_numbers(work: Callable[[int], Iterator[pa.RecordBatch]]) -> Callable[[Batches], Batches]:
    """Returns a function for `mapInArrow` over `_numbers`."""

    def run(batches: Batches) -> Batches:
        with mark_errors():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from work(number)

    return run


def _map_texts(
    work: Callable[[Batches], Iterator[str]], roots: Sequence[DataRoot] = ()
) -> Callable[[Batches], Batches]:
    """Returns a function for `mapInArrow` that yields a row for each text, and needs the roots."""

    def run(batches: Batches) -> Batches:
        with mark_errors(roots):
            texts = list(work(batches))
            yield pa.RecordBatch.from_pydict({"text": pa.array(texts, pa.string())})

    return run


def _make_batch(task: int, body: pa.Buffer) -> pa.RecordBatch:
    columns = [pa.array([task], pa.int32()), _one_binary(body)]
    return pa.RecordBatch.from_arrays(columns, ["task", "body"])


def _one_binary(body: pa.Buffer) -> pa.Array:
    """Returns an array of one value, without copying it."""
    ends = pa.py_buffer(struct.pack("=ii", 0, body.size))
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, body])


def _split_task(batches: Batches) -> tuple[int | None, Batches]:
    """Returns the task of the pieces, None if there are none, and all pieces."""
    first = next(batches, None)
    if first is None:
        return None, batches
    return first.column("task")[0].as_py(), itertools.chain([first], batches)


def _bodies(batches: Batches) -> Iterator[pa.Buffer]:
    for batch in batches:
        for body in batch.column("body"):
            yield body.as_buffer()


@contextmanager
def _task_engine(engine: EngineSettings) -> Iterator[EngineSettings]:
    """Opens the engine settings of a task: one thread, and a folder in Spark's spill folder.

    Spark deletes the folders of killed tasks with its own.
    """
    folders = os.environ[_LOCAL_DIRS].split(",")
    parent = folders[os.getpid() % len(folders)]
    with tempfile.TemporaryDirectory(prefix="sleeper-", dir=parent) as folder:
        yield replace(engine, spill_folder=Path(folder), threads=1)
