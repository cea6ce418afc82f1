"""The one merge: sorted files in, one stream_batches of rows in key order out.

Each input is registered with its sort order declared, so that the plan is a
SortPreservingMerge over scans: no row is sorted again, and memory is what the open
inputs take. Inputs that do not fit the settings' memory or `merge_files_max` together
go through local disk in passes first, as they are; the last merge filters and aggregates.
Iterators run on what comes out of it.
"""

import contextlib
import uuid
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from datafusion import DataFrame, SessionContext

from sleeper.datafiles.arrow import view_schema
from sleeper.datafiles.engine.errors import engine_errors
from sleeper.datafiles.engine.predicate import column, key_order, regions_predicate
from sleeper.datafiles.engine.scan_count import stream_batches
from sleeper.datafiles.engine.session import (
    EngineSettings,
    engine_url,
    new_table_name,
    open_session,
)
from sleeper.datafiles.merge.iterate import in_engine, iterated
from sleeper.datafiles.merge.processing import ProcessingStep, processed
from sleeper.partitions.region import Region, key_of_region
from sleeper.schema.model import Schema
from sleeper.storage.bucket import Bucket

_PASS_ROW_GROUP_ROWS = 20_000
_MIB = 1024**2
# Measured (benchmarks, `merge-memory`; docs/design/0002-merge.md says why). Batches and pages:
_OPEN_INPUT_BYTES = 4 * _MIB
# Each input has a thread that reads it, whose allocator gets back what other threads freed
# only at every hundredth allocation: some 35 row groups of a narrow table, or the whole file.
_ROW_GROUP_BYTES = _MIB
_ROW_GROUPS_KEPT = 35
# A page of each column.
_BYTES_READ_PER_KEY = _MIB // 2
# Over several passes there are about twice as many threads as inputs, and they see more files.
_THREADS_OVER_PASSES = 2


@dataclass(frozen=True, slots=True)
class MergeInput:
    """A sorted file, and which of its rows to take: those in any of the regions.

    `regions` None takes every row without looking at keys. `bytes` is the file's size, from
    which follows what it takes to have it open; None if it is not known.
    """

    url: str
    regions: tuple[Region, ...] | None = None
    bytes: int | None = None

    def open_bytes(self, schema: Schema) -> int:
        """About how much memory the input takes when all inputs are merged at once."""
        most = _ROW_GROUPS_KEPT * _ROW_GROUP_BYTES
        size = most if self.bytes is None else self.bytes
        if self.regions is not None and all(
            key_of_region(schema, r) is not None for r in self.regions
        ):
            size = min(size, len(self.regions) * _BYTES_READ_PER_KEY)
        return _OPEN_INPUT_BYTES + min(size, most)

    def pass_bytes(self) -> int:
        """The same when it is one of many that are merged in passes."""
        size = _ROW_GROUP_BYTES if self.bytes is None else min(self.bytes, _ROW_GROUP_BYTES)
        return _OPEN_INPUT_BYTES + _THREADS_OVER_PASSES * _ROW_GROUPS_KEPT * size


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """What to merge. `columns` are field names in the order wanted, None for all.

    Rows pass through `steps`, in order. The inputs then hold all rows of the keys that are
    wanted: regions are of row keys, so they may go below.
    """

    schema: Schema
    inputs: tuple[MergeInput, ...]
    columns: tuple[str, ...] | None = None
    limit: int | None = None
    steps: tuple[ProcessingStep, ...] = ()

    @property
    def is_iterated(self) -> bool:
        """Whether one of the steps has an iterator."""
        return any(step.iterator is not None for step in self.steps)


@dataclass(frozen=True, slots=True)
class MergePlan:
    """A merge whose inputs may all be open at once. It may be run several times.

    `frame` is what the engine does of `request`: all of it, unless it is iterated.
    """

    session: SessionContext
    frame: DataFrame
    request: MergeRequest
    inputs: tuple[MergeInput, ...]
    buckets: tuple[Bucket, ...]

    @property
    def is_iterated(self) -> bool:
        """Whether iterators run on what comes out of the engine."""
        return self.request.is_iterated

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Rows in key order, as batches of the engine's own types (text and bytes as views)."""
        rows = stream_batches(
            self.session, self.frame, [each.url for each in self.inputs], self.buckets
        )
        yield from _iterated(rows, self.request, self.session) if self.is_iterated else rows


def merge(
    request: MergeRequest, settings: EngineSettings, session: SessionContext | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows in key order, as batches of the engine's own types (text and bytes as views).

    A session that is handed in keeps its cache of file footers from merge to merge.
    """
    with merge_plan(request, settings, session) as plan:
        yield from plan.batches()


@contextlib.contextmanager
def merge_plan(
    request: MergeRequest, settings: EngineSettings, session: SessionContext | None = None
) -> Iterator[MergePlan]:
    """The last merge, after the passes before it; it can be run while the context is open."""
    session = session or open_session(settings)
    planned = request
    if request.is_iterated:
        # Whatever an iterator has not seen yet may change it, so columns and limit come last.
        request = narrowed_to_columns(request)
        planned = replace(request, columns=None, limit=None, steps=in_engine(request.steps))
    with contextlib.ExitStack() as cleanup:
        inputs = list(request.inputs)
        while len(groups := _groups(request.schema, inputs, settings)) > 1:
            inputs = _merge_pass(request.schema, groups, settings, session, cleanup)
        frame, names = merge_frame(replace(planned, inputs=tuple(inputs)), session)
        cleanup.callback(_forget, session, names)
        yield MergePlan(session, frame, request, tuple(inputs), settings.buckets)


def _iterated(
    batches: Iterator[pa.RecordBatch], request: MergeRequest, session: SessionContext
) -> Iterator[pa.RecordBatch]:
    left = request.limit
    with contextlib.closing(iterated(batches, request.schema, request.steps, session)) as rows:
        for batch in rows:
            if left is not None:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            yield batch if request.columns is None else batch.select(request.columns)
            if left == 0:
                return


def narrowed_to_columns(request: MergeRequest) -> MergeRequest:
    """Without the value fields that nobody needs, if each iterator says what it needs."""
    if request.columns is None:
        return request
    needed = {*request.columns}
    for step in request.steps:
        needed |= {each.field for each in step.processing.filters}
        if step.iterator is not None:
            fields = step.iterator.required_fields(request.schema)
            if fields is None:
                return request
            needed |= set(fields)
    values = tuple(field for field in request.schema.values if field.name in needed)
    return replace(request, schema=replace(request.schema, values=values))


def merge_frame(request: MergeRequest, session: SessionContext) -> tuple[DataFrame, list[str]]:
    """The plan of a merge without passes, and the tables registered for it."""
    order = key_order(request.schema)
    wanted = view_schema(request.schema)
    names: list[str] = []
    frames: list[DataFrame] = []
    with engine_errors():
        for each in request.inputs:
            name = new_table_name()
            names.append(name)
            url = engine_url(each.url)
            session.register_parquet(name, url, schema=wanted, file_sort_order=[order])
            frame = session.table(name)
            if each.regions is not None:
                predicate = regions_predicate(request.schema, each.regions)
                frame = frame if predicate is None else frame.filter(predicate)
            frames.append(frame)
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.union(frame)
        if any(step.processing.aggregations for step in request.steps):
            # Merged first: rows of equal keys lie in several files, so that to aggregate each
            # file by itself is work for next to nothing. The sort below holds then.
            whole = whole.sort(*order)
        whole = processed(whole, request.schema, request.steps).sort(*order)
        if request.columns is not None:
            whole = whole.select(*(column(c) for c in request.columns))
        if request.limit is not None:
            whole = whole.limit(request.limit)
    return whole, names


def _groups(
    schema: Schema, inputs: Sequence[MergeInput], settings: EngineSettings
) -> list[tuple[MergeInput, ...]]:
    """All inputs if they may be open at once, else runs of two or more to merge by passes."""
    is_few = len(inputs) <= settings.merge_files_max
    fit = sum(i.open_bytes(schema) for i in inputs) <= settings.memory_bytes
    if len(inputs) < 3 or (is_few and fit):
        return [tuple(inputs)]
    groups: list[list[MergeInput]] = []
    room = 0
    for each in inputs:
        size = each.pass_bytes()
        is_full = groups and len(groups[-1]) >= settings.merge_files_max
        if not groups or is_full or (size > room and len(groups[-1]) >= 2):
            groups.append([])
            room = settings.memory_bytes
        groups[-1].append(each)
        room -= size
    return [tuple(g) for g in groups]


def _merge_pass(
    schema: Schema,
    groups: Sequence[tuple[MergeInput, ...]],
    settings: EngineSettings,
    session: SessionContext,
    cleanup: contextlib.ExitStack,
) -> list[MergeInput]:
    """One round: each group becomes one local file."""
    merged = []
    for group in groups:
        path = settings.new_spill_path(f"pass-{uuid.uuid4().hex}.parquet")
        cleanup.callback(path.unlink, missing_ok=True)
        frame, names = merge_frame(MergeRequest(schema, group), session)
        try:
            batches = stream_batches(session, frame, [each.url for each in group], settings.buckets)
            with engine_errors():
                _write_pass(path, batches, view_schema(schema))
        finally:
            _forget(session, names)
        merged.append(MergeInput(str(path), bytes=path.stat().st_size))
        for used in group:
            # Files of an earlier round are not needed once they are merged.
            if Path(used.url).parent == settings.spill_folder:
                Path(used.url).unlink(missing_ok=True)
    return merged


def _write_pass(path: Path, batches: Iterator[pa.RecordBatch], kind: pa.Schema) -> None:
    with pq.ParquetWriter(
        path, kind, compression="lz4", use_dictionary=False, write_statistics=False
    ) as writer:
        for batch in batches:
            writer.write_batch(batch, row_group_size=_PASS_ROW_GROUP_ROWS)


def _forget(session: SessionContext, names: Sequence[str]) -> None:
    for name in names:
        session.deregister_table(name)
