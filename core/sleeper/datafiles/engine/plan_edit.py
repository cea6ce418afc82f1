"""Scans of several Parquet files as one table.

DataFusion's Python interface registers one path per table (apache/datafusion-python#535, #518),
while its logical plans hold a list (apache/datafusion#1384). `scan_files` therefore adds the
paths to the serialised plan of the first file.
"""

from collections.abc import Sequence

import pyarrow as pa
from datafusion import DataFrame, SessionContext
from datafusion.plan import LogicalPlan

from sleeper.datafiles.engine.session import engine_url, new_table_name

# Tags of protobuf fields of the plan message (field 1, a scan) and the scan message (field 2, a
# path), both length-delimited.
_SCAN_TAG = b"\x0a"
_PATH_TAG = b"\x12"


def scan_files(
    session: SessionContext, files: Sequence[str], schema: pa.Schema | None = None
) -> DataFrame:
    """Returns all rows of Parquet files of one schema, in no order.

    The scan opens a few files at a time. A union of scans would open all of them at once.
    """
    first, *others = (engine_url(file) for file in files)
    name = new_table_name()
    session.register_parquet(name, first, schema=schema, file_extension="")
    frame = session.table(name)
    if others:
        plan = add_paths(frame.logical_plan().to_bytes(session), others)
        frame = session.create_dataframe_from_logical_plan(LogicalPlan.from_bytes(session, plan))
    return frame


def add_paths(plan: bytes, urls: Sequence[str]) -> bytes:
    """Adds URLs to the serialised scan of one file."""
    length, start = _read_varint(plan, 1)
    if plan[:1] != _SCAN_TAG or start + length != len(plan):
        raise AssertionError("unknown serialisation of a file scan")
    scan = plan[start:] + b"".join(
        _PATH_TAG + encode_varint(len(url)) + url for url in (u.encode() for u in urls)
    )
    return _SCAN_TAG + encode_varint(len(scan)) + scan


def encode_varint(number: int) -> bytes:
    """Encodes a number as protobuf and Thrift do: 7 bits per byte, lowest first."""
    digits = []
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns a number and the offset of its end."""
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return number, at
