"""Damaged and hostile Parquet files are refused by name.

They are read in another process, because Arrow and the engine are native code, which a file
may bring to an end.
"""

import base64
import datetime as dt
import io
import random
import re
import subprocess
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from struct import pack, unpack

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.datafiles.arrow import arrow_schema
from sleeper.schema.model import (
    DecimalType,
    Field,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    schema_to_json,
)
from tests.seeds import choose_seed
from tests.unit.datafiles.test_engine_canaries import replace_column_type

P = PrimitiveType
SCHEMA = Schema(
    (Field("id", P.STRING),),
    (Field("time", P.LONG),),
    (
        Field("count", P.INT, nullable=True),
        Field("raw", P.BYTE_ARRAY),
        Field("ratio", P.FLOAT, nullable=True),
        Field("at", P.TIMESTAMP),
        Field("price", DecimalType(10, 2), nullable=True),
        Field("tags", ListType(P.STRING)),
        Field("props", MapType(P.STRING, P.LONG), nullable=True),
    ),
)
ROWS = 40
MUTATIONS = 400


def write_parquet(table: pa.Table, **settings: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **settings)
    return sink.getvalue()


def some_files() -> list[bytes]:
    rows = [
        {
            "id": f"k{n}",
            "time": n,
            "count": n if n % 3 else None,
            "raw": b"\x00\xff",
            "ratio": 0.5,
            "at": dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC),
            "price": Decimal("12.30"),
            "tags": ["a", ""],
            "props": [("x", 1), ("y", n)],
        }
        for n in range(ROWS)
    ]
    table = pa.Table.from_pylist(rows, arrow_schema(SCHEMA))
    return [
        write_parquet(table),
        write_parquet(table, compression="zstd", data_page_version="2.0", write_page_checksum=True),
        write_parquet(table, compression="gzip", use_dictionary=False, write_statistics=False),
        write_parquet(table, compression="none", row_group_size=9, write_page_index=True),
        write_parquet(table, store_schema=False, store_decimal_as_integer=True),
    ]


def mutate(content: bytes, choice: random.Random) -> bytes:
    """The file with a few bytes changed, added or lost, most often in its footer."""
    changed = bytearray(content)
    (length,) = unpack("<I", changed[-8:-4])
    end = len(changed) - 8
    start = end - length if choice.random() < 0.6 else 0
    for _ in range(choice.choice([1, 1, 1, 2, 4])):
        place = choice.randrange(start, end)
        match choice.randrange(5):
            case 0 | 1:
                changed[place] ^= 1 << choice.randrange(8)
            case 2 | 3:
                changed[place] = choice.choice([0, 1, 127, 128, 255])
            case _:
                changed[place : place + choice.randrange(2)] = choice.randbytes(1)
    if start:
        changed[-8:-4] = pack("<I", len(changed) - 8 - start)
    return bytes(changed)


def read_all(folder: Path, files: Mapping[str, bytes], schema: Schema) -> dict[str, str]:
    """Returns the outcome of each file, read in a process that must not crash."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    module = "tests.unit.datafiles.damaged_parquet"
    run = subprocess.run(
        [sys.executable, "-m", module, schema_to_json(schema), str(folder)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert run.returncode == 0, f"{run.stdout[-300:]}\n{run.stderr[-3000:]}"
    outcomes = (line.partition(" ") for line in run.stdout.splitlines())
    return {name: outcome for name, _, outcome in outcomes}


def with_time_zone_that_is_no_text(content: bytes) -> bytes:
    """The file with a time zone that is not UTF-8, in the Arrow schema that it carries."""
    match = re.search(rb"ARROW:schema.{1,6}?([A-Za-z0-9+/]{100,}={0,2})", content, re.DOTALL)
    assert match is not None
    schema = base64.b64decode(match[1])
    assert schema.count(b"UTC\0") == 1
    return content.replace(match[1], base64.b64encode(schema.replace(b"UTC\0", b"U\xacC\0")))


def test_damaged_files_are_read_or_refused_by_name(tmp_path: Path) -> None:
    seed = choose_seed()
    choice = random.Random(seed)
    originals = some_files()
    whole = {f"{n:04d}.parquet": content for n, content in enumerate(originals)}
    first = len(originals)
    changed = {
        f"{n:04d}.parquet": mutate(choice.choice(originals), choice)
        for n in range(first, first + MUTATIONS)
    }
    changed["type.parquet"] = replace_column_type(originals[0])
    changed["zone.parquet"] = with_time_zone_that_is_no_text(originals[0])
    changed["name.parquet"] = originals[-1].replace(b"\x04time", b"\x04tim\xff")
    try:
        outcomes = read_all(tmp_path / "files", whole | changed, SCHEMA)
    except AssertionError as error:
        pytest.fail(f"seed {seed}: {error}")
    assert set(outcomes) == set(whole | changed)
    assert {outcomes[name] for name in whole} == {f"rows {ROWS}"}
    surprising = {
        name: outcome
        for name, outcome in outcomes.items()
        if not outcome.startswith(("rows ", "refused file "))
    }
    assert not surprising, f"seed {seed}"
    assert outcomes["name.parquet"].startswith("refused ")
    assert outcomes["zone.parquet"].startswith("refused file ")


def test_footer_with_contradicting_row_count_is_refused(tmp_path: Path) -> None:
    content = some_files()[0]
    place = content.rindex(b"\x16\x50")  # a zigzag 64-bit integer: the 40 rows of the row group
    changed = content[:place] + b"\x16\x58" + content[place + 2 :]
    outcomes = read_all(tmp_path / "files", {"total.parquet": changed}, SCHEMA)
    assert outcomes["total.parquet"].endswith(
        "damaged footer: 40 rows in all, but 44 in its row groups"
    )
