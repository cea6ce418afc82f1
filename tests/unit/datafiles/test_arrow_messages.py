"""Arrow streams from outside: their sizes are checked before they are decoded."""

import io
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from sleeper.datafiles.expanded_sizes import expanded_bytes
from sleeper.datafiles.sources.arrow_messages import (
    FramingError,
    MessageKind,
    read_message_sizes,
)
from sleeper.datafiles.sources.arrow_stream import read_stream
from sleeper.datafiles.sources.budget import (
    SLICE_BYTES,
    RowBudget,
    RowLimits,
    TooLargeError,
    slice_batch,
)
from sleeper.datafiles.sources.files import RowChecker
from sleeper.datafiles.sources.parquet import read_parquet
from sleeper.datafiles.sources.text import read_csv, read_json_lines
from sleeper.datafiles.validity import check_undamaged
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import Field, PrimitiveType, Schema
from tests.examples import examples

SCHEMA = Schema((Field("k", PrimitiveType.LONG),), (), (Field("v", PrimitiveType.STRING),))
ROWS = pa.record_batch(
    {
        "k": pa.array(range(1000), pa.int64()),
        "v": pa.array(["a" * 50, None] * 500).dictionary_encode(),
        "n": pa.nulls(1000),
        "l": pa.array([[1, 2, 3]] * 1000, pa.list_(pa.int8())),
    }
)


def stream(batch: pa.RecordBatch = ROWS, codec: str | None = None, count: int = 1) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        for _ in range(count):
            writer.write_batch(batch)
    return sink.getvalue()


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_sizes_are_those_without_compression(codec: str | None) -> None:
    schema, dictionary, batch, second = read_message_sizes(io.BytesIO(stream(ROWS, codec, 2)))
    assert (schema.kind, dictionary.kind) == (MessageKind.SCHEMA, MessageKind.DICTIONARY)
    assert (dictionary.rows, dictionary.cells) == (1, 1)
    assert dictionary.bytes >= 50
    assert batch == second
    assert (batch.rows, batch.cells) == (1000, 4 * 1000 + 3000)
    # The dictionary's indices, the numbers, the lists; buffers are padded.
    assert batch.bytes == pytest.approx(8000 + 4000 + 4004 + 3000 + 125, abs=64)


@pytest.mark.parametrize("codec", [None, "zstd"])
@pytest.mark.parametrize("in_file", [False, True])
def test_rows_within_the_budget_are_read(codec: str | None, in_file: bool, tmp_path: Path) -> None:
    content: Any = stream(ROWS, codec, 3)
    if in_file:
        (tmp_path / "rows").write_bytes(content)
        content = tmp_path / "rows"
    batches = list(read_stream(content, "rows", 8, RowBudget(RowLimits())))
    assert batches == [ROWS] * 3


def test_rows_beyond_the_budget_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pa.ipc.RecordBatchStreamReader, "read_next_batch", None, raising=False)
    for limits in (RowLimits(bytes_max=60_000), RowLimits(memory_bytes_max=10_000)):
        with pytest.raises(TooLargeError):
            list(read_stream(stream(ROWS, "zstd"), "rows", 8, RowBudget(limits)))


@pytest.mark.slow
def test_damaged_streams_are_refused() -> None:
    content, chosen = stream(ROWS, "zstd", 2), random.Random(5)
    for _ in range(examples(1500)):
        damaged = bytearray(content)
        for _ in range(chosen.choice([1, 1, 4])):
            damaged[chosen.randrange(len(damaged))] = chosen.randrange(256)
        cut = bytes(damaged[: chosen.choice([len(damaged), chosen.randrange(len(damaged))])])
        try:
            for batch in read_stream(cut, "rows", 8, RowBudget(RowLimits())):
                check_undamaged(batch)
        except InvalidRequestError:
            pass


@pytest.mark.parametrize("length", [1, 4, 7, 200, 900])
def test_a_stream_that_ends_within_a_message_is_refused(length: int) -> None:
    with pytest.raises(InvalidRequestError, match="not an Arrow stream"):
        list(read_stream(stream()[:length], "rows", 8))


@pytest.mark.slow
def test_a_schema_that_shares_its_parts_does_not_unfold() -> None:
    """Each level has one field twice, so the schema has 2^n fields, of one name."""
    with pytest.raises(FramingError, match="fields"):
        list(read_message_sizes(io.BytesIO(shared_schema(levels=15, name=b"f"))))
    with pytest.raises(FramingError, match="texts"):
        list(read_message_sizes(io.BytesIO(shared_schema(levels=10, name=b"f" * 100_000))))


def shared_schema(levels: int, name: bytes) -> bytes:
    """Returns a schema whose fields are tables that are referred to twice."""
    data = bytearray(4)

    def add(content: bytes) -> int:
        data.extend(bytes(-len(data) % 4))
        data.extend(content)
        return len(data) - len(content)

    def table(members: dict[int, bytes]) -> int:
        """Adds a table whose members have 4 bytes each."""
        numbers = sorted(members)
        offsets = [4 * (numbers.index(n) + 1) if n in members else 0 for n in range(8)]
        entries = struct.pack("<HH8H", 20, 4 + 4 * len(numbers), *offsets)
        place = add(entries)
        table_place = add(struct.pack("<i", len(data) + (-len(data) % 4) - place))
        for number in numbers:
            data.extend(members[number])
        return table_place

    def refer(places: dict[int, tuple[int, int]]) -> None:
        for member, (table_place, target) in places.items():
            struct.pack_into("<I", data, table_place + member, target - (table_place + member))

    # Offsets of flatbuffers point forward, so tables of later levels are added later.
    message = table({1: bytes([1, 0, 0, 0]), 2: bytes(4)})
    struct.pack_into("<I", data, 0, message)
    parent = table({1: bytes(4)})
    refer({8: (message, parent)})
    slots = [(parent, 4)]
    for _ in range(levels):
        vector = add(struct.pack("<III", 2, 0, 0))
        for slot, member in slots:
            refer({member: (slot, vector)})
        field = table({0: bytes(4), 5: bytes(4)})
        for entry in (vector + 4, vector + 8):
            struct.pack_into("<I", data, entry, field - entry)
        slots = [(field, 8)]
        text = add(struct.pack("<I", len(name)) + name)
        refer({4: (field, text)})
    vector = add(struct.pack("<I", 0))
    refer({8: (slots[0][0], vector)})
    data.extend(bytes(-len(data) % 8))
    return struct.pack("<Ii", 0xFFFF_FFFF, len(data)) + bytes(data)


@pytest.mark.parametrize(
    ("values", "sizes"),
    [
        (pa.array([1, None], pa.int8()), 8),
        (pa.nulls(2), 8),
        (pa.array(["abc", None]), [3, 0]),
        (pa.array(["abc", "x" * 20], pa.string_view()), [3, 20]),
        (pa.array(["abc", "x" * 20], pa.large_string()).slice(1), [20]),
        (pa.array(["x" * 20, None, "x" * 20]).dictionary_encode(), [20, 20, 20]),
        (pa.array([[1, 2], None], pa.list_(pa.int8())), [24, 8]),
        (pa.array([["ab"], ["c", "d"]], pa.large_list(pa.string())).slice(1), [24]),
        (pa.array([[1, 2]], pa.list_(pa.int8(), 2)), [24]),
        (pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())), [24, 8]),
    ],
    ids=str,
)
def test_sizes_count_shared_values_for_each_row(values: pa.Array, sizes: Any) -> None:
    found = expanded_bytes(values)
    assert (found if isinstance(found, int) else found.tolist()) == sizes


def test_a_batch_of_shared_values_is_read_in_slices() -> None:
    texts = pa.array(["x" * 1024**2]).dictionary_encode().take(pa.array([0] * 100))
    batch = pa.record_batch({"k": pa.array(range(100)), "v": texts})
    parts = list(slice_batch(batch, SCHEMA))
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([batch]))
    assert all(0 < part.num_rows <= SLICE_BYTES // 1024**2 for part in parts)
    with pytest.raises(TooLargeError, match="a row takes"):
        list(slice_batch(batch, SCHEMA, RowBudget(RowLimits(memory_bytes_max=1024**2))))


WIDE = Schema(
    (Field("k", PrimitiveType.LONG),),
    (),
    tuple(Field(f"v{n}", PrimitiveType.LONG, nullable=True) for n in range(500)),
)
ROWS_MAX = SLICE_BYTES // (501 * 8)


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_files_with_few_columns_of_a_wide_table_are_read_in_slices(
    ending: str, tmp_path: Path
) -> None:
    file, rows = tmp_path / f"rows.{ending}", 2 * ROWS_MAX + 1
    table = pa.table({"k": pa.array(range(rows), pa.int64())})
    if ending == "parquet":
        pq.write_table(table, file)
    elif ending == "csv":
        csv.write_csv(table, file)
    else:
        file.write_text("".join(f'{{"k": {k}}}\n' for k in range(rows)))
    readers: dict[str, Callable[[Path, RowChecker], Iterator[pa.RecordBatch]]] = {
        "parquet": read_parquet,
        "csv": read_csv,
        "jsonl": read_json_lines,
    }
    batches = list(readers[ending](file, RowChecker(WIDE, "rows", None)))
    assert [k for batch in batches for k in batch.column("k").to_pylist()] == list(range(rows))
    assert max(batch.num_rows for batch in batches) <= ROWS_MAX
