"""Detection of missing and empty files, which DataFusion silently scans as empty tables.

DataFusion lists the path of a table and accepts an empty list (apache/datafusion#1736), and it
ignores files without bytes (apache/datafusion#13737). The physical plan has no scan of such a
file, so the scans in the plan's text are counted.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from datafusion import DataFrame, ExecutionPlan, SessionContext

from sleeper.datafiles.engine.errors import engine_errors
from sleeper.errors import DataError, SleeperError, StateMovedOnError
from sleeper.storage.bucket import Bucket, is_s3_url
from sleeper.storage.s3_file import s3_file

_HEAD_THREADS = 16


def stream_batches(
    session: SessionContext,
    frame: DataFrame,
    files: Sequence[str] = (),
    buckets: Sequence[Bucket] = (),
) -> Iterator[pa.RecordBatch]:
    """Executes the frame and yields its batches. Raises only errors of `sleeper.errors`.

    The plan must scan each of `files` by itself: StateMovedOnError if a file is gone, DataError
    if it is empty.
    """
    with engine_errors():
        plan = frame.execution_plan()
        if files and count_scans(plan) < len(files):
            raise _find_missing(files, buckets) or StateMovedOnError(
                f"a data file is gone, one of {', '.join(files[:10])}"
            )
        if plan.partition_count != 1:
            raise DataError(f"the plan has {plan.partition_count} partitions, not one")
        for batch in session.execute(plan, 0):
            yield batch.to_pyarrow()


def count_scans(plan: ExecutionPlan) -> int:
    """Returns the number of scans of exactly one group of files."""
    children = plan.children()
    if children:
        return sum(map(count_scans, children))
    return int("file_groups={1 group:" in plan.display())


def check_files_exist(files: Sequence[str], buckets: Sequence[Bucket] = ()) -> None:
    """Checks the files of a plan whose scans cannot be counted, after the plan was made.

    File names are never reused, so a file that exists now existed when the plan was made. If it
    is deleted later, reading fails.
    """
    error = _find_missing(files, buckets)
    if error is not None:
        raise error


def _find_missing(files: Sequence[str], buckets: Sequence[Bucket]) -> SleeperError | None:
    """Returns the error of the first file that is gone or empty."""
    for file, size in _sizes(files, buckets):
        if size == 0:
            return DataError(f"data file {file} is empty: it has no bytes at all")
        if size is None:
            return StateMovedOnError(f"a data file is gone: {file}")
    return None


def _sizes(files: Sequence[str], buckets: Sequence[Bucket]) -> Iterator[tuple[str, int | None]]:
    """Yields each file with its bytes, None if it is gone."""
    if not any(is_s3_url(file) for file in files):
        yield from ((file, _size(file, buckets)) for file in files)
        return
    with ThreadPoolExecutor(_HEAD_THREADS, "object-sizes") as threads:
        yield from zip(files, threads.map(lambda file: _size(file, buckets), files), strict=True)


def _size(file: str, buckets: Sequence[Bucket]) -> int | None:
    if is_s3_url(file):
        return s3_file(file, buckets).size()
    try:
        return Path(file).stat().st_size
    except FileNotFoundError:
        return None
