"""Writes a sorted stream to the leaves of its rows, in several threads.

Two strategies: one file per leaf, or one shared file with a reference per leaf, which makes few
small files on large trees. Encoding takes longer than merging, so files are written in *lanes*: a
lane is one thread with a short queue, and each file stays in its lane. Other threads make files
durable, because waiting for the disk takes no processor time.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa

from sleeper.datafiles.engine.errors import engine_errors
from sleeper.datafiles.key_values import key_value
from sleeper.datafiles.write.file import KEPT_BYTES_MAX, DataFileWriter, FileSettings
from sleeper.datafiles.write.route import LeafRouter
from sleeper.errors import SleeperError
from sleeper.files import (
    SIDECAR_SUFFIXES,
    DataFile,
    FileReference,
    new_data_path,
)
from sleeper.partitions.partition import ROOT_PARTITION_ID, Partition
from sleeper.schema.model import Schema
from sleeper.storage.location import DataRoot

_ROWS_PER_TURN = 65_536
_QUEUED_TURNS_MAX = 2
_FINISHERS = 4
_FINISHING_MAX = 8
_KEPT_BYTES_MAX = 512 * 1024**2


class FileStrategy(Enum):
    """The layout of an ingest's files (`sleeper.table.ingest.file.writing.strategy`)."""

    ONE_FILE_PER_LEAF = "one_file_per_leaf"
    ONE_REFERENCE_PER_LEAF = "one_reference_per_leaf"


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """The table, leaves and run of a write. Files are in `folder` until they are uploaded."""

    root: DataRoot
    table_id: str
    schema: Schema
    leaves: Sequence[Partition]
    run_start_ms: int
    settings: FileSettings = field(default_factory=FileSettings)
    threads: int = 2
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A complete file and its references."""

    file: DataFile
    references: tuple[FileReference, ...]


def write_sorted(
    batches: Iterator[pa.RecordBatch],
    target: WriteTarget,
    strategy: FileStrategy,
    on_rows: Callable[[int], None] = lambda _: None,
) -> list[WrittenFile]:
    """Writes the stream. `on_rows` receives row counts as progress.

    A failure deletes the written files, which frees a full disk at once.
    """
    router = LeafRouter(target.schema, target.leaves)
    write = _write_shared if strategy is FileStrategy.ONE_REFERENCE_PER_LEAF else _write_by_leaf
    lanes = _Lanes(target.threads)
    try:
        with engine_errors(), lanes:
            return write(_count_rows(batches, on_rows), target, router, lanes)
    except BaseException:  # an interrupt too
        with contextlib.suppress(SleeperError):
            suffixes = ("", *SIDECAR_SUFFIXES)
            target.root.delete([p + s for p in lanes.paths for s in suffixes])
        raise


def _count_rows(
    batches: Iterator[pa.RecordBatch], on_rows: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        on_rows(batch.num_rows)


def _write_shared(
    batches: Iterator[pa.RecordBatch], target: WriteTarget, router: LeafRouter, lanes: "_Lanes"
) -> list[WrittenFile]:
    file: _OpenFile | None = None
    rows_of_leaf: dict[int, int] = {}
    for batch in batches:
        if not batch.num_rows:
            continue
        if file is None:
            only = target.leaves[0].id if len(target.leaves) == 1 else ROOT_PARTITION_ID
            path = new_data_path(target.table_id, only, target.run_start_ms)
            file = _OpenFile(target, path, lanes, lane=0)
        for index, rows in router.route(batch):
            rows_of_leaf[index] = rows_of_leaf.get(index, 0) + rows.num_rows
        file.add(batch)
    if file is None:
        return []
    written = file.finish().result()
    references = tuple(
        FileReference(written.path, target.leaves[index].id, rows)
        for index, rows in rows_of_leaf.items()
    )
    return [WrittenFile(written, references)]


def _write_by_leaf(
    batches: Iterator[pa.RecordBatch], target: WriteTarget, router: LeafRouter, lanes: "_Lanes"
) -> list[WrittenFile]:
    open_files: dict[int, _OpenFile] = {}
    finished: list[tuple[int, Future[DataFile]]] = []
    for batch in batches:
        first_key = key_value(batch.column(0)[0]) if batch.num_rows else None
        passed = [p for p in open_files if _is_passed(target.leaves[p], first_key)]
        finished.extend((index, open_files.pop(index).finish()) for index in passed)
        for index, rows in router.route(batch):
            if index not in open_files:
                leaf = target.leaves[index]
                path = new_data_path(target.table_id, leaf.id, target.run_start_ms)
                lane = (len(finished) + len(open_files)) % target.threads
                open_files[index] = _OpenFile(target, path, lanes, lane)
            open_files[index].add(rows)
        # Leaves cut on a later field are open at the same time. A leaf may get several files.
        while sum(f.kept_bytes for f in open_files.values()) > _KEPT_BYTES_MAX:
            fullest = max(open_files, key=lambda p: open_files[p].kept_bytes)
            finished.append((fullest, open_files.pop(fullest).finish()))
    finished += [(index, file.finish()) for index, file in open_files.items()]
    return [_whole_reference(f.result(), target.leaves[index]) for index, f in finished]


def _is_passed(leaf: Partition, first_key: Any) -> bool:
    """Whether a sorted stream at this key has no more rows of the leaf."""
    within = leaf.region.ranges[0]
    return within.max is not None and first_key is not None and not first_key < within.max


def _whole_reference(file: DataFile, leaf: Partition) -> WrittenFile:
    return WrittenFile(file, (FileReference(file.path, leaf.id, file.rows),))


class _OpenFile:
    """A file that is written in its lane, some thousand rows at a time."""

    def __init__(self, target: WriteTarget, path: str, lanes: "_Lanes", lane: int) -> None:
        self._lanes, self._lane = lanes, lane
        self._turn: list[pa.RecordBatch] = []
        self._turn_rows = 0

        def make() -> DataFileWriter:
            writer = DataFileWriter(
                target.root, path, target.schema, target.settings, target.folder
            )
            lanes.paths.append(path)
            return writer

        self._writer = lanes.open(lane, make)
        self._turns: list[Future[None]] = []
        self._bytes = 0

    @property
    def kept_bytes(self) -> int:
        """The maximum of the file's bytes in memory."""
        return min(self._bytes, KEPT_BYTES_MAX)

    def add(self, rows: pa.RecordBatch) -> None:
        self._bytes += rows.nbytes
        self._turn.append(rows)
        self._turn_rows += rows.num_rows
        if self._turn_rows >= _ROWS_PER_TURN:
            self._submit()

    def finish(self) -> "Future[DataFile]":
        self._submit()
        self._turns.append(self._lanes.submit(self._lane, self._encode))
        return self._lanes.finish(self._finish)

    def _encode(self) -> None:
        self._writer.result().encode()

    def _finish(self) -> DataFile:
        for turn in self._turns:
            # Raises the error of a failed write, so that no incomplete file is finished.
            turn.result()
        return self._writer.result().finish()

    def _submit(self) -> None:
        turn, writer = self._turn, self._writer
        self._turn, self._turn_rows = [], 0
        if turn:
            write = self._lanes.submit(self._lane, lambda: writer.result().write(turn))
            self._turns = [t for t in self._turns if not t.done() or t.exception()]
            self._turns.append(write)


class _Lanes:
    """Threads with short queues, each of which works in order.

    `submit` blocks while the lane's queue is full, and raises errors of earlier work.
    """

    def __init__(self, count: int) -> None:
        self._executors = [ThreadPoolExecutor(1, "data-file-writer") for _ in range(count)]
        self._finishers = ThreadPoolExecutor(_FINISHERS, "data-file-finisher")
        self._running: list[deque[Future[Any]]] = [deque() for _ in range(count)]
        self._finishing: deque[Future[DataFile]] = deque()
        self._writers: list[Future[DataFileWriter]] = []
        self.paths: list[str] = []

    def __enter__(self) -> "_Lanes":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for executor in (*self._executors, self._finishers):
            executor.shutdown(wait=True, cancel_futures=True)
        if kind is not None:
            for writer in self._writers:
                if writer.done() and not writer.cancelled() and not writer.exception():
                    writer.result().abandon()

    def open(self, lane: int, make: Callable[[], DataFileWriter]) -> "Future[DataFileWriter]":
        self._writers = [w for w in self._writers if not w.done() or not w.result().is_closed]
        writer: Future[DataFileWriter] = self.submit(lane, make)
        self._writers.append(writer)
        return writer

    def submit(self, lane: int, work: Callable[[], Any]) -> "Future[Any]":
        running = self._running[lane]
        while len(running) > _QUEUED_TURNS_MAX:
            running.popleft().result()
        future = self._executors[lane].submit(work)
        running.append(future)
        return future

    def finish(self, work: Callable[[], DataFile]) -> "Future[DataFile]":
        while len(self._finishing) >= _FINISHING_MAX:
            self._finishing.popleft().result()
        future = self._finishers.submit(work)
        self._finishing.append(future)
        return future
