"""The one merge: sorted files in, one stream of rows in key order out.

Each input is registered with its sort order declared, so that the plan is a
SortPreservingMerge over scans: no row is sorted again, and memory is what the open
inputs take. Inputs that do not fit the settings' memory or `merge_files_max` together
go through local disk in passes first, as they are; the last merge filters and aggregates.
"""

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from datafusion import DataFrame, SessionContext

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.predicate import column, key_order, regions_predicate
from sleeper.datafiles.processing_frame import ProcessingStep, processed
from sleeper.datafiles.session import (
    EngineSettings,
    engine_errors,
    engine_url,
    new_table_name,
    open_session,
    stream,
)
from sleeper.partitions.region import Region, key_of_region
from sleeper.schema.model import Schema

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


def merge(
    request: MergeRequest, settings: EngineSettings, session: SessionContext | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows in key order, as batches of the engine's own types (text and bytes as views).

    A session that is handed in keeps its cache of file footers from merge to merge.
    """
    session = session or open_session(settings)
    with contextlib.ExitStack() as cleanup:
        inputs = list(request.inputs)
        while len(groups := _groups(request.schema, inputs, settings)) > 1:
            inputs = _merge_pass(request.schema, groups, settings, session, cleanup)
        frame, names = merge_frame(replace(request, inputs=tuple(inputs)), session)
        cleanup.callback(_forget, session, names)
        yield from stream(session, frame, [each.url for each in inputs], settings.buckets)


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
        whole = processed(whole, request.schema, request.steps).sort(*order)
        if request.columns is not None:
            whole = whole.select(*(column(c) for c in request.columns))
        if request.limit is not None:
            whole = whole.limit(request.limit)
    return whole, names


def view_schema(schema: Schema) -> pa.Schema:
    """The table's Arrow schema with top-level text and bytes as views, as the engine reads it."""
    return pa.schema([pa.field(f.name, _view_type(f.type), True) for f in arrow_schema(schema)])


def _view_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.string_view()
    return pa.binary_view() if pa.types.is_binary(kind) else kind


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
        path = settings.spill_folder / f"pass-{uuid.uuid4().hex}.parquet"
        cleanup.callback(path.unlink, missing_ok=True)
        frame, names = merge_frame(MergeRequest(schema, group), session)
        try:
            batches = stream(session, frame, [each.url for each in group], settings.buckets)
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
