"""Values at the limits of every type, through every input, are stored exactly or refused."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.datafiles.arrow import arrow_type
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.sort import RowSort
from sleeper.datafiles.sources.files import RowChecker, read_batches
from sleeper.datafiles.sources.parquet import is_scannable, open_parquet, read_parquet
from sleeper.datafiles.sources.text import read_csv, read_json_lines
from sleeper.errors import DataError, InvalidRequestError
from sleeper.schema.model import (
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    type_name,
)

P = PrimitiveType
LONGEST = "9" * 38


def raw_decimals(precision: int, scale: int, *numbers: int) -> pa.Array:
    """Decimals by their digits, also those of more digits than the precision."""
    content = b"".join(n.to_bytes(16, "little", signed=True) for n in numbers)
    buffers = [None, pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.decimal128(precision, scale), len(numbers), buffers)


def raw_text(content: bytes) -> pa.Array:
    """One text of these bytes, also if they are not UTF-8."""
    offsets = pa.array([0, len(content)], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(content)])


@dataclass(frozen=True)
class Limits:
    """Texts of the type that fit, what they are stored as, and values that do not fit.

    `stored` is of the Arrow type `storage` where the type itself cannot be listed in Python.
    """

    kind: PrimitiveType | DecimalType
    good: tuple[str, ...]
    stored: pa.Array
    bad_texts: tuple[str, ...]
    bad_arrays: tuple[pa.Array, ...]

    @property
    def is_text_in_json(self) -> bool:
        return self.kind in {P.STRING, P.BYTE_ARRAY, P.TIMESTAMP, P.DATE}

    def json(self, text: str) -> str:
        return json.dumps(text) if self.is_text_in_json else text


def times(kind: pa.DataType, *numbers: int) -> pa.Array:
    return pa.array(numbers, pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)


US = pa.timestamp("us", "UTC")
LIMITS = (
    Limits(
        P.INT,
        ("-2147483648", "2147483647", "0"),
        pa.array([-(2**31), 2**31 - 1, 0], pa.int32()),
        ("-2147483649", "2147483648", "1.5", "9" * 400),
        (
            pa.array([2**31]),
            pa.array([-(2**31) - 1]),
            pa.array([2**31], pa.uint32()),
            pa.array([2.0**31]),
            pa.array([1.5]),
            pa.array([float("nan")]),
            pa.array([float("inf")], pa.float32()),
        ),
    ),
    Limits(
        P.LONG,
        ("-9223372036854775808", "9223372036854775807", "0"),
        pa.array([-(2**63), 2**63 - 1, 0]),
        ("-9223372036854775809", "9223372036854775808", "1e400"),
        (pa.array([2**63], pa.uint64()), pa.array([2.0**63]), pa.array([float("-inf")])),
    ),
    Limits(
        P.FLOAT,
        ("3.4028234663852886e38", "-3.4028234663852886e38", "1e-45", "NaN", "Infinity", "-0.0"),
        pa.array(
            [
                3.4028234663852886e38,
                -3.4028234663852886e38,
                1e-45,
                float("nan"),
                float("inf"),
                -0.0,
            ],
            pa.float32(),
        ),
        ("3.4028236e38", "-3.4028236e38", "1e400"),
        (pa.array([3.4028236e38]), pa.array([-1.7e308]), pa.array([2**24 + 1])),
    ),
    Limits(
        P.DOUBLE,
        ("1.7976931348623157e308", "-1.7976931348623157e308", "5e-324", "NaN", "-Infinity", "-0.0"),
        pa.array(
            [
                1.7976931348623157e308,
                -1.7976931348623157e308,
                5e-324,
                float("nan"),
                float("-inf"),
                -0.0,
            ]
        ),
        ("1.8e308", "-1.8e308", "1e400", "1" + "0" * 309),
        (pa.array([2**53 + 1]),),
    ),
    Limits(P.BOOLEAN, ("true", "false"), pa.array([True, False]), ("1", "yes"), ()),
    Limits(
        DecimalType(6, 1),
        ("99999.9", "-99999.9", "0"),
        raw_decimals(6, 1, 999999, -999999, 0),
        ("999999", "100000", "-100000.0", "0.05", "1e400", "9" * 80),
        (
            raw_decimals(6, 1, 9999990),
            raw_decimals(6, 1, -1000000),  # of as many bytes as the type has in Parquet
            raw_decimals(7, 1, 1000000),
            raw_decimals(7, 2, 5),
            raw_decimals(6, 1, 1000000).cast(pa.decimal256(40, 1), safe=False),
            pa.array([100000]),
        ),
    ),
    Limits(
        DecimalType(38, 0),
        (LONGEST, f"-{LONGEST}"),
        raw_decimals(38, 0, int(LONGEST), -int(LONGEST)),
        (f"1{'0' * 38}", f"-1{'0' * 38}", f"{LONGEST}9", "9e38", "9" * 77, "0.1"),
        (raw_decimals(38, 0, 10**38), raw_decimals(38, 1, 1)),
    ),
    Limits(
        DecimalType(38, 38),
        (f"0.{LONGEST}", f"-0.{LONGEST}"),
        raw_decimals(38, 38, int(LONGEST), -int(LONGEST)),
        ("1", "-1", "4", f"0.{'0' * 38}1"),
        (raw_decimals(38, 38, 10**38), pa.array([1])),
    ),
    Limits(
        P.TIMESTAMP,
        (
            "294247-01-10T04:00:54.775807Z",
            "-290308-12-21T19:59:05.224193Z",
            "0001-01-01T00:00:00.000000Z",
            "9999-12-31T23:59:59.999999Z",
            "9999-12-31T23:59:59.999999-14:00",
        ),
        times(
            US,
            2**63 - 1,
            -(2**63) + 1,
            -62_135_596_800_000_000,
            253_402_300_799_999_999,
            253_402_300_799_999_999 + 14 * 3_600_000_000,
        ),
        (
            "294247-01-10T04:00:54.775808Z",
            "-290308-12-21T19:59:05.224191Z",
            "2020-01-01T00:00:00.0000001Z",
            "2020-02-30T00:00:00Z",
            "NaT",
        ),
        (
            times(pa.timestamp("s", "UTC"), 2**62),
            times(pa.timestamp("ms"), -(2**62)),
            times(pa.timestamp("ns", "UTC"), 1),
        ),
    ),
    Limits(
        P.DATE,
        ("5881580-07-11", "-5877641-06-23", "0001-01-01", "9999-12-31"),
        times(pa.date32(), 2**31 - 1, -(2**31), -719_162, 2_932_896),
        ("5881580-07-12", "-5877641-06-22", "2020-02-30", "NaT"),
        (times(pa.date64(), 86_400_000 * 2**31), times(pa.date64(), 1)),
    ),
    Limits(
        P.STRING,
        ("a", "\x01", "\U0010ffff", "é"),
        pa.array(["a", "\x01", "\U0010ffff", "é"]),
        (),
        (raw_text(b"\xff"), raw_text(b"\xed\xa0\x80"), raw_text(b"\xff").dictionary_encode()),
    ),
    Limits(
        P.BYTE_ARRAY,
        ("AP8=", "AA=="),
        pa.array([b"\x00\xff", b"\x00"]),
        ("*", "AP9=", "AAAAA"),
        (),
    ),
)
TIMESTAMPS = next(limit for limit in LIMITS if limit.kind is P.TIMESTAMP)
SHAPES = ("plain", "list", "map")


def shape_kind(limits: Limits, shape: str) -> FieldType:
    match shape:
        case "list":
            return ListType(limits.kind)
        case "map":
            return MapType(P.STRING, limits.kind)
        case _:
            return limits.kind


def shape_json(limits: Limits, shape: str, text: str) -> str:
    value = limits.json(text)
    return {"plain": value, "list": f"[{value}]", "map": f'{{"k": {value}}}'}[shape]


def shape_array(values: pa.Array, shape: str) -> pa.Array:
    """One value in each list or map."""
    offsets = pa.array(range(len(values) + 1), pa.int32())
    match shape:
        case "list":
            return pa.ListArray.from_arrays(offsets, values)
        case "map":
            return pa.MapArray.from_arrays(offsets, pa.array(["k"] * len(values)), values)
        case _:
            return values


def make_schema(kind: FieldType) -> Schema:
    return Schema((Field("id", P.LONG),), (), (Field("v", kind),))


def make_checker(kind: FieldType, name: str = "rows") -> RowChecker:
    return RowChecker(make_schema(kind), name, None)


def check_and_read(batches: Iterator[pa.RecordBatch], kind: FieldType, rows: int) -> str:
    """Returns the values as text that distinguishes NaN, -0.0 and distant years."""
    read = pa.Table.from_batches(list(batches))["v"].cast(arrow_type(kind)).combine_chunks()
    assert len(read) == rows
    if isinstance(kind, ListType | MapType):
        read = read.flatten() if isinstance(kind, ListType) else read.items
    return as_text(read)


def as_text(values: pa.Array) -> str:
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if values.type == pa.date32() else pa.int64())
    return repr(values.to_pylist())


def write_text(folder: Path, name: str, kind: FieldType, cells: tuple[str, ...]) -> Path:
    path = folder / name
    if name.endswith(".csv"):
        quoted_text = (cell.replace('"', '""') for cell in cells)
        path.write_text("id,v\n" + "".join(f'1,"{cell}"\n' for cell in quoted_text))
    else:
        path.write_text("".join(f'{{"id": 1, "v": {cell}}}\n' for cell in cells))
    return path


def read_text(path: Path, kind: FieldType) -> Iterator[pa.RecordBatch]:
    read = read_csv if path.name.endswith(".csv") else read_json_lines
    return read(path, make_checker(kind, str(path)))


def text_cell(limits: Limits, shape: str, name: str, text: str) -> str:
    is_csv = name.endswith(".csv")
    return text if is_csv and shape == "plain" else shape_json(limits, shape, text)


def ids(value: Any) -> str:
    return type_name(value.kind) if isinstance(value, Limits) else str(value)


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("limits", LIMITS, ids=ids)
def test_text_at_type_limits_is_stored_exactly_or_refused(
    tmp_path: Path, limits: Limits, shape: str, name: str
) -> None:
    kind = shape_kind(limits, shape)
    cells = tuple(text_cell(limits, shape, name, text) for text in limits.good)
    path = write_text(tmp_path, name, kind, cells)
    assert check_and_read(read_text(path, kind), kind, len(cells)) == as_text(limits.stored)
    for text in limits.bad_texts:
        path = write_text(tmp_path, name, kind, (text_cell(limits, shape, name, text),))
        with pytest.raises(InvalidRequestError, match=r"rows\.\w+, row 1"):
            check_and_read(read_text(path, kind), kind, 1)


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
@pytest.mark.parametrize("limits", LIMITS, ids=ids)
def test_map_keys_at_type_limits_are_stored_exactly_or_refused(
    tmp_path: Path, limits: Limits, name: str
) -> None:
    kind = MapType(limits.kind, P.LONG)
    path = write_text(
        tmp_path, name, kind, tuple(f"{{{json.dumps(text)}: 1}}" for text in limits.good)
    )
    read = pa.Table.from_batches(list(read_text(path, kind)))["v"].combine_chunks()
    assert as_text(read.keys) == as_text(limits.stored)
    for text in limits.bad_texts:
        path = write_text(tmp_path, name, kind, (f"{{{json.dumps(text)}: 1}}",))
        with pytest.raises(InvalidRequestError, match=r"rows\.\w+, row 1"):
            check_and_read(read_text(path, kind), kind, 1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("limits", LIMITS, ids=ids)
def test_arrow_values_at_type_limits_are_stored_exactly_or_refused(
    limits: Limits, shape: str
) -> None:
    kind = shape_kind(limits, shape)
    for values in (limits.stored, *limits.bad_arrays):
        column = shape_array(values, shape)
        batch = pa.RecordBatch.from_arrays(
            [pa.array(range(len(column))), column], names=["id", "v"]
        )
        read = read_batches(iter([batch]), make_checker(kind))
        if values is limits.stored:
            assert check_and_read(read, kind, len(column)) == as_text(values)
            continue
        with pytest.raises(InvalidRequestError, match="rows, row 1: field 'v'"):
            check_and_read(read, kind, 1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("limits", LIMITS, ids=ids)
def test_parquet_values_at_type_limits_are_stored_exactly_or_refused(
    tmp_path: Path, limits: Limits, shape: str
) -> None:
    kind = shape_kind(limits, shape)
    for values in (limits.stored, *limits.bad_arrays):
        column = shape_array(values, shape)
        try:
            path = write_parquet(tmp_path, column)
        except pa.ArrowException:
            continue
        if values is not limits.stored and not is_written(path, column):
            continue
        if values is limits.stored:
            assert check_and_read(read_or_scan(path, kind), kind, len(values)) == as_text(values)
            continue
        with pytest.raises(InvalidRequestError, match=r"v\.parquet, row group 0, row 1: field 'v'"):
            check_and_read(read_or_scan(path, kind), kind, 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_parquet_96_bit_timestamps_are_stored_exactly_or_refused(
    tmp_path: Path, shape: str
) -> None:
    kind = shape_kind(TIMESTAMPS, shape)
    for micros, fits in (
        ((-9_223_372_036_854_775, 9_223_372_036_854_775), True),
        ((253_402_300_799_999_999,), False),
        ((-62_135_596_800_000_000,), False),
    ):
        values = times(US, *micros)
        path = write_parquet(
            tmp_path, shape_array(values, shape), use_deprecated_int96_timestamps=True
        )
        if fits:
            assert check_and_read(read_or_scan(path, kind), kind, len(values)) == as_text(values)
            continue
        with pytest.raises(InvalidRequestError, match=r"v\.parquet, row group 0, row 1: field 'v'"):
            check_and_read(read_or_scan(path, kind), kind, 1)


def write_parquet(folder: Path, column: pa.Array, **settings: Any) -> Path:
    path = folder / "v.parquet"
    table = pa.table({"id": pa.array(range(len(column))), "v": column})
    pq.write_table(table, path, **settings)
    return path


def is_written(path: Path, column: pa.Array) -> bool:
    """Whether the file has the values: Arrow writes some that are out of bounds as others."""
    read = pq.read_table(path)["v"].combine_chunks()
    try:
        return bool(read.cast(column.type, safe=False).equals(column))
    except pa.ArrowException:
        return False


def read_or_scan(path: Path, kind: FieldType) -> Iterator[pa.RecordBatch]:
    """Reads a Parquet file as an ingest does."""
    schema = make_schema(kind)
    file = open_parquet(path, make_checker(kind, str(path)))
    assert file is not None
    if not is_scannable(path, file, schema):
        return read_parquet(path, make_checker(kind, str(path)))
    unsorted = RowSort(schema, path.parent, EngineSettings(path.parent))
    unsorted.add_file(path, file.schema_arrow, file.metadata.num_rows, 0)
    try:
        return iter(list(unsorted.batches()))
    except DataError:
        return read_parquet(path, make_checker(kind, str(path)))
