"""Sorted runs on local disk, and their merge."""

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc as ipc
from datafusion import DataFrame, SessionContext

from sleeper.datafiles.arrow import as_light_views, view_schema
from sleeper.datafiles.engine.errors import engine_errors
from sleeper.datafiles.engine.expression import SortKey, sort_expressions
from sleeper.datafiles.engine.scan import ARROW_SUFFIX, scan_sorted_file, stream_batches
from sleeper.datafiles.engine.session import BATCH_ROWS, open_session
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.errors import UnavailableError
from sleeper.schema.model import Schema
from sleeper.storage.disk import check_written, describe_write_error

_RUNS_MAX = 64
# A merge keeps some batches of each run, and copies of their keys.
_BATCHES_PER_RUN = 8
_BATCH_BYTES_MIN, _BATCH_BYTES_MAX = 64 * 1024, 1024**2
_BATCH_ROWS_MAX = 32_768
# The part of the memory that a batch of merged rows may take.
_MERGED_BATCHES = 16


@dataclass(frozen=True, slots=True)
class Run:
    """A file of sorted rows. Its largest batch has `batch_bytes` and `batch_rows`."""

    path: Path
    rows: int
    bytes: int
    batch_rows: int
    batch_bytes: int

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows, in batches of the engine's types. UnavailableError if it is gone."""
        try:
            with ipc.open_file(str(self.path)) as file:
                for position in range(file.num_record_batches):
                    yield file.get_batch(position)
        except OSError as error:
            raise UnavailableError(f"cannot read sorted rows: {error}") from error


def batch_rows(rows: int, size: int, settings: EngineSettings) -> int:
    """Returns the rows of a batch, of which a merge of runs holds many. `size` is of all rows."""
    fitting = settings.memory_bytes // (_RUNS_MAX * _BATCHES_PER_RUN)
    most = min(max(fitting, _BATCH_BYTES_MIN), _BATCH_BYTES_MAX)
    return min(max(most * rows // max(size, 1), 1), _BATCH_ROWS_MAX)


def write_run(folder: Path, schema: Schema, batches: Iterable[pa.RecordBatch]) -> Run:
    """Writes batches of the engine's types to a new file in the folder."""
    kind = view_schema(schema)
    path = folder / f"{uuid.uuid4().hex}{ARROW_SUFFIX}"
    rows = size = 0
    largest = (0, 0)
    try:
        # Parquet takes six times as long to write, and no less to read.
        with pa.OSFile(str(path), "wb") as file, ipc.new_file(file, kind) as writer:
            for batch in batches:
                rows, size = rows + batch.num_rows, size + batch.nbytes
                largest = max(largest, (batch.nbytes, batch.num_rows))
                writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=kind))
    except OSError as error:
        path.unlink(missing_ok=True)
        reason = describe_write_error(folder, error)
        raise UnavailableError(f"cannot write sorted rows to {folder}: {reason}") from error
    return Run(path, rows, size, largest[1], largest[0])


@contextlib.contextmanager
def merged_runs(
    schema: Schema, runs: Sequence[Run], settings: EngineSettings, order: Sequence[SortKey]
) -> Iterator[tuple[SessionContext, DataFrame]]:
    """Yields the rows of all runs in order, as a frame that is valid in the context.

    More runs than memory allows are first merged in groups, into files beside them.
    UnavailableError at the end if the disk refused a run: what was read of it may be wrong.
    """
    session = open_session(settings, batch_rows=_merged_batch_rows(runs, settings))
    with contextlib.ExitStack() as passes:
        while len(runs) > (most := _runs_max(runs, settings)):
            merged = []
            for start in range(0, len(runs), most):
                group = runs[start : start + most]
                rows = stream_batches(session, _merge(schema, group, session, order))
                # A batch of the merge refers to the text of batches of all runs.
                light = (as_light_views(batch, view_schema(schema)) for batch in rows)
                merged.append(write_run(group[0].path.parent, schema, light))
                passes.callback(merged[-1].path.unlink, missing_ok=True)
                _check_written(group)
            runs = merged
        yield session, _merge(schema, runs, session, order)
        _check_written(runs)


def _check_written(runs: Sequence[Run]) -> None:
    try:
        for run in runs:
            check_written(run.path)
    except OSError as error:
        raise UnavailableError(f"sorted rows are lost: {error}") from error


def _merged_batch_rows(runs: Sequence[Run], settings: EngineSettings) -> int:
    """Returns the rows of the engine's batches, which a pass writes as batches of a run."""
    usual = min(batch_rows(run.rows, run.bytes, settings) for run in runs)
    # Wide rows may be beside each other.
    fitting = settings.memory_bytes // _MERGED_BATCHES
    widest = min(fitting * run.batch_rows // max(run.batch_bytes, 1) for run in runs)
    return max(min(usual, widest, BATCH_ROWS), 1)


def _runs_max(runs: Sequence[Run], settings: EngineSettings) -> int:
    largest = max(run.batch_bytes for run in runs)
    fitting = settings.memory_bytes // max(largest * _BATCHES_PER_RUN, 1)
    return max(min(fitting, settings.merge_files_max, _RUNS_MAX), 2)


def _merge(
    schema: Schema, runs: Sequence[Run], session: SessionContext, order: Sequence[SortKey]
) -> DataFrame:
    by, kinds = sort_expressions(order), view_schema(schema)
    with engine_errors():
        first, *others = (scan_sorted_file(session, str(r.path), kinds, by) for r in runs)
        for each in others:
            first = first.union(each)
        return first.sort(*by)
