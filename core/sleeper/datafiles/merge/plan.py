"""The merge of sorted files into one stream of rows in key order.

The memory of a plan (`frame`) is that of the open inputs. Inputs that exceed the settings' memory
or `merge_files_max` are first merged in passes through local disk, unfiltered. The last merge
filters and aggregates, and iterators run on its output. Of a table of latest rows, all of these
see only the newest row of each key.
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
from sleeper.datafiles.engine.scan import stream_batches
from sleeper.datafiles.engine.session import open_session
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.deletes import OnDropped
from sleeper.datafiles.merge.frame import merge_frame
from sleeper.datafiles.merge.iterate import planned_steps, run_iterators
from sleeper.datafiles.merge.request import (
    MergeInput,
    MergeRequest,
    Stored,
    group_inputs,
    with_hidden,
)
from sleeper.storage.bucket import Bucket

_PASS_ROW_GROUP_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class MergePlan:
    """A merge of inputs that may all be open at once. `again` returns the plan of another run.

    `frame` is the plan of `request`, up to the first iterator, and `planned` its request. `dropped`
    has the number of rows that the passes left out as deleted or replaced, and receives those of
    its run.
    """

    session: SessionContext
    frame: DataFrame
    request: MergeRequest
    inputs: tuple[MergeInput, ...]
    buckets: tuple[Bucket, ...]
    planned: MergeRequest
    dropped: list[int]
    cleanup: contextlib.ExitStack

    def again(self) -> "MergePlan":
        """Returns the plan of another run, which counts its own dropped rows."""
        if self.request.schema.latest is None and not any(each.deleted for each in self.inputs):
            return self
        dropped = self.dropped[:1]
        frame = _frame_in(self.cleanup, self.planned, self.session, dropped)
        return replace(self, frame=frame, dropped=dropped)

    @property
    def is_iterated(self) -> bool:
        """Whether iterators run on the output of the plan."""
        return self.request.is_iterated

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yields rows in key order, in batches of the engine's types (text and bytes as views)."""
        rows = stream_batches(self.session, self.frame, _urls(self.inputs), self.buckets)
        if self.is_iterated:
            rows = _iterated(rows, self.request, self.session)
        yield from _limited(rows, self.request.limit)


def _urls(inputs: Sequence[MergeInput]) -> list[str]:
    """Returns the files that a plan of the inputs scans."""
    return [each.url for each in inputs if each.rows is None]


def merge(
    request: MergeRequest, settings: EngineSettings, session: SessionContext | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields rows in key order, in batches of the engine's types (text and bytes as views).

    A session that is reused keeps its cache of footers.
    """
    with merge_plan(request, settings, session) as plan:
        yield from plan.batches()


@contextlib.contextmanager
def merge_plan(
    request: MergeRequest, settings: EngineSettings, session: SessionContext | None = None
) -> Iterator[MergePlan]:
    """Runs the passes and yields the plan of the last merge, valid in the context."""
    session = session or _open_session(request, settings)
    planned = request
    if request.is_iterated:
        # An iterator may depend on every column and row, so columns and limit are applied last.
        request = narrow_columns(request)
        planned = replace(request, columns=None, limit=None, steps=planned_steps(request.steps))
    with contextlib.ExitStack() as cleanup:
        inputs = list(request.inputs)
        passed: list[int] = []
        while len(groups := group_inputs(request.schema, inputs, settings)) > 1:
            inputs = _merge_pass(request, groups, settings, session, cleanup, passed.append)
        dropped = [sum(passed)]
        planned = replace(planned, inputs=tuple(inputs))
        frame = _frame_in(cleanup, planned, session, dropped)
        buckets = settings.buckets
        yield MergePlan(session, frame, request, planned.inputs, buckets, planned, dropped, cleanup)


def _open_session(request: MergeRequest, settings: EngineSettings) -> SessionContext:
    # Page indexes of small pages take memory. Only scans that may skip pages use them.
    is_filtered = any(each.regions is not None for each in request.inputs) or any(
        step.processing.filters for step in request.steps
    )
    options = {} if is_filtered else {"execution.parquet.enable_page_index": "false"}
    return open_session(settings, options=options)


def _frame_in(
    cleanup: contextlib.ExitStack,
    request: MergeRequest,
    session: SessionContext,
    dropped: list[int],
) -> DataFrame:
    # An append needs no lock among threads.
    frame, names = merge_frame(request, session, dropped.append)
    cleanup.callback(_deregister, session, names)
    return frame


def _iterated(
    batches: Iterator[pa.RecordBatch], request: MergeRequest, session: SessionContext
) -> Generator[pa.RecordBatch, None, None]:
    with contextlib.closing(run_iterators(batches, request.schema, request.steps, session)) as rows:
        for batch in rows:
            yield batch if request.columns is None else batch.select(request.columns)


def _limited(
    batches: Generator[pa.RecordBatch, None, None], limit: int | None
) -> Iterator[pa.RecordBatch]:
    """Yields the first rows."""
    with contextlib.closing(batches):
        if limit is None:
            yield from batches
            return
        left = limit
        for batch in batches:
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return


def narrow_columns(request: MergeRequest) -> MergeRequest:
    """Drops unneeded value fields, if each iterator declares its fields."""
    if request.columns is None:
        return request
    latest = request.schema.latest
    needed = {*request.columns, *({latest.by} if latest else ())}
    for step in request.steps:
        needed |= {each.field for each in step.processing.filters}
        if step.iterator is not None:
            fields = step.iterator.required_fields(request.schema)
            if fields is None:
                return request
            needed |= set(fields)
    values = tuple(field for field in request.schema.values if field.name in needed)
    return replace(request, schema=replace(request.schema, values=values))


def _merge_pass(
    whole: MergeRequest,
    groups: Sequence[tuple[MergeInput, ...]],
    settings: EngineSettings,
    session: SessionContext,
    cleanup: contextlib.ExitStack,
    on_dropped: OnDropped,
) -> list[MergeInput]:
    """Merges each group into one local file."""
    merged = []
    schema = whole.schema
    stored = None if schema.latest is None else Stored()
    written = schema if stored is None else with_hidden(schema, True, True)
    if whole.numbered:
        written = with_hidden(schema, True, False)
    for group in groups:
        path = settings.new_spill_path(f"pass-{uuid.uuid4().hex}.parquet")
        cleanup.callback(path.unlink, missing_ok=True)
        request = MergeRequest(schema, group, stored=stored, numbered=whole.numbered)
        frame, names = merge_frame(request, session, on_dropped)
        try:
            batches = stream_batches(session, frame, _urls(group), settings.buckets)
            with engine_errors():
                _write_pass(path, batches, view_schema(written))
        finally:
            _deregister(session, names)
        merged.append(MergeInput(str(path), bytes=path.stat().st_size))
        for used in group:
            # Files of an earlier pass are not needed any more.
            if Path(used.url).parent == settings.spill_folder:
                Path(used.url).unlink(missing_ok=True)
    return merged


def _write_pass(path: Path, batches: Iterator[pa.RecordBatch], kind: pa.Schema) -> None:
    with pq.ParquetWriter(
        path, kind, compression="lz4", use_dictionary=False, write_statistics=False
    ) as writer:
        for batch in batches:
            # The engine marks the default of an added field as never null.
            typed = pa.RecordBatch.from_arrays(batch.columns, schema=kind)
            writer.write_batch(typed, row_group_size=_PASS_ROW_GROUP_ROWS)


def _deregister(session: SessionContext, names: Sequence[str]) -> None:
    for name in names:
        session.deregister_table(name)
