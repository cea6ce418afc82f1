"""Scans of several Parquet files as one table, and detection of missing and empty files.

DataFusion's Python interface registers one path per table (apache/datafusion-python#535, #518),
while its logical plans hold a list (apache/datafusion#1384). `scan_files` therefore adds the
paths to the serialised plan of the first file.

DataFusion lists the path of a table and scans a missing file as an empty table
(apache/datafusion#1736), so scans are counted in the plan, or the files are looked up.
"""

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from datafusion import DataFrame, ExecutionPlan, SessionContext
from datafusion.expr import SortExpr
from datafusion.plan import LogicalPlan

from sleeper.datafiles.engine.errors import engine_errors
from sleeper.datafiles.engine.session import engine_url, new_table_name
from sleeper.datafiles.engine.thrift import varint
from sleeper.errors import DataError, SleeperError, StateMovedOnError
from sleeper.storage.bucket import Bucket, is_s3_url
from sleeper.storage.bucket_folder import s3_file

# Tags of protobuf fields of the plan message (field 1, a scan) and the scan message (field 2, a
# path; field 13, an order of a file), all length-delimited.
_SCAN_TAG = b"\x0a"
_PATH_TAG = b"\x12"
_ORDER_TAG = b"\x6a"
# No ending of users' files, which may have any name.
ARROW_SUFFIX = ".staged-arrow"


def scan_files(
    session: SessionContext, files: Sequence[str], schema: pa.Schema | None = None
) -> DataFrame:
    """Returns all rows of Parquet files, or Arrow files, of one schema, in no order.

    The name of an Arrow file ends with `ARROW_SUFFIX`. The scan opens a few files at a time. A
    union of scans would open all of them at once.
    """
    first, *others = (engine_url(file) for file in files)
    name = new_table_name()
    if first.endswith(ARROW_SUFFIX):
        session.register_arrow(name, first, schema=schema, file_extension="")
    else:
        session.register_parquet(name, first, schema=schema, file_extension="")
    frame = session.table(name)
    if others:
        plan = add_paths(frame.logical_plan().to_bytes(session), others)
        frame = session.create_dataframe_from_logical_plan(LogicalPlan.from_bytes(session, plan))
    return frame


def add_paths(plan: bytes, urls: Sequence[str]) -> bytes:
    """Adds URLs to the serialised scan of one file."""
    scan = _scan_message(plan) + b"".join(
        _PATH_TAG + varint(len(url)) + url for url in (u.encode() for u in urls)
    )
    return _SCAN_TAG + varint(len(scan)) + scan


def scan_sorted_file(
    session: SessionContext, file: str, schema: pa.Schema, order: Sequence[SortExpr]
) -> DataFrame:
    """Returns the rows of an Arrow file that is declared to be in order.

    DataFusion's Python interface declares no order of Arrow files. So the order is taken from the
    serialised scan of the same file as Parquet, whose contents are not read for that.
    """
    name, url = new_table_name(), engine_url(file)
    session.register_arrow(name, url, schema=schema, file_extension="")
    scan = _take_scan_message(session, name)
    session.register_parquet(name, url, schema=schema, file_extension="", file_sort_order=[order])
    parquet = _fields(_take_scan_message(session, name))
    scan += b"".join(field for field in parquet if field.startswith(_ORDER_TAG))
    plan = LogicalPlan.from_bytes(session, _SCAN_TAG + varint(len(scan)) + scan)
    return session.create_dataframe_from_logical_plan(plan)


def _take_scan_message(session: SessionContext, name: str) -> bytes:
    """Returns the serialised scan of a table, which is deregistered."""
    plan = session.table(name).logical_plan().to_bytes(session)
    session.deregister_table(name)
    return _scan_message(plan)


def _scan_message(plan: bytes) -> bytes:
    length, start = _read_varint(plan, 1)
    if plan[:1] != _SCAN_TAG or start + length != len(plan):
        raise AssertionError("unknown serialisation of a file scan")
    return plan[start:]


_VARINT, _DELIMITED = 0, 2


def _fields(message: bytes) -> Iterator[bytes]:
    """Yields the fields of a protobuf message with their tags."""
    at = 0
    while at < len(message):
        start = at
        tag, at = _read_varint(message, at)
        value, at = _read_varint(message, at)
        if tag & 7 not in (_VARINT, _DELIMITED):
            raise AssertionError(f"unknown field {tag} in a serialised scan")
        at += value if tag & 7 == _DELIMITED else 0
        yield message[start:at]


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns a number and the offset of its end."""
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return number, at


_HEAD_THREADS = 16


def stream_batches(
    session: SessionContext,
    frame: DataFrame,
    files: Sequence[str] = (),
    buckets: Sequence[Bucket] = (),
) -> Generator[pa.RecordBatch, None, None]:
    """Executes the frame and yields its batches. Raises only errors of `sleeper.errors`.

    The plan must scan each of `files` by itself: StateMovedOnError if a file is gone, DataError
    if it is empty.
    """
    with engine_errors():
        plan = frame.execution_plan()
        if files and count_scans(plan) < len(files):
            raise _find_missing(files, buckets) or StateMovedOnError(
                f"a data file is missing, one of {', '.join(files[:10])}"
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
            return DataError(f"data file {file} is empty (0 bytes)")
        if size is None:
            return StateMovedOnError(f"a data file is missing: {file}")
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


NO_LIMIT = 2**62


def add_barrier(frame: DataFrame) -> DataFrame:
    """Returns the frame with a barrier: later filters see only the rows of earlier ones.

    DataFusion moves filters below projections, sorts, merges and other filters, so it may evaluate
    a condition on rows that another filter hides. It never moves a filter below a limit.
    """
    return frame.limit(NO_LIMIT)
