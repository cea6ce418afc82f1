"""Text files of random rows: CSV and JSON lines, with nulls and maps, compressed."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import zstandard

from benchmarks.rows import random_rows
from benchmarks.schema import SCHEMA
from sleeper.schema.model import Field, MapType, PrimitiveType, Schema

FILES = 4
_ROWS_AT_ONCE = 250_000
_LOW_BITS = 0xFFFFFFFF
_MAP_VALUE_MAX = 1000

WITH_MAPS = Schema(
    SCHEMA.row_keys,
    SCHEMA.sort_keys,
    (
        Field("value", PrimitiveType.STRING, nullable=True),
        Field("props", MapType(PrimitiveType.STRING, PrimitiveType.LONG), nullable=True),
    ),
)


@dataclass(frozen=True, slots=True)
class TextCase:
    """A kind of text. `ending` is that of the files' names."""

    name: str
    ending: str
    has_maps: bool = False

    @property
    def schema(self) -> Schema:
        return WITH_MAPS if self.has_maps else SCHEMA

    @property
    def is_json(self) -> bool:
        return self.ending.startswith("json")


CASES = {
    case.name: case
    for case in (
        TextCase("CSV", "csv"),
        TextCase("JSON", "jsonl"),
        TextCase("JSON with nulls and maps", "jsonl", has_maps=True),
        TextCase("JSON, gzip", "jsonl.gz"),
        TextCase("CSV, Zstandard", "csv.zst"),
    )
}


@dataclass(frozen=True, slots=True)
class Sums:
    """What the output must have: rows, lower halves of sort keys, nulls and values of maps."""

    rows: int
    sort: int
    nulls: int = 0
    props: int = 0


def make_text(folder: Path, case: TextCase, rows: int) -> tuple[list[Path], Sums]:
    """Makes the files of a case once. Returns their paths and sums."""
    kind = "maps" if case.has_maps else "rows"
    home = folder / f"text-{rows}-{kind}-{case.ending}"
    paths = [home / f"{number}.{case.ending}" for number in range(FILES)]
    known = home / "sums.json"
    if not known.exists():
        home.mkdir(parents=True, exist_ok=True)
        sums = [_write(path, case, rows // FILES, seed) for seed, path in enumerate(paths)]
        totals = {name: sum(asdict(each)[name] for each in sums) for name in asdict(sums[0])}
        known.write_text(json.dumps(totals))
    return paths, Sums(**json.loads(known.read_text()))


def sum_batch(batch: pa.RecordBatch) -> Sums:
    """Returns the sums of a batch."""
    low = pc.bit_wise_and(batch.column("sort"), _LOW_BITS)
    sort = pc.sum(low).as_py() or 0
    if "props" not in batch.schema.names:
        return Sums(batch.num_rows, sort)
    props = pc.sum(batch.column("props").items).as_py() or 0
    return Sums(batch.num_rows, sort, batch.column("value").null_count, props)


def _write(path: Path, case: TextCase, rows: int, seed: int) -> Sums:
    parts = []
    with _open(path) as sink:
        if not case.is_json:
            sink.write(b"key,sort,value\n")
        for start in range(0, rows, _ROWS_AT_ONCE):
            count = min(_ROWS_AT_ONCE, rows - start)
            columns, sums = _make_columns(case, count, seed * 1_000_003 + start)
            parts.append(sums)
            for block in _write_lines(columns, case):
                sink.write(block)
    return Sums(*(sum(values) for values in zip(*(asdict(p).values() for p in parts), strict=True)))


def _open(path: Path) -> Any:
    if path.suffix == ".gz":
        return gzip.open(path, "wb", compresslevel=6)
    return zstandard.open(path, "wb") if path.suffix == ".zst" else path.open("wb")


def _make_columns(case: TextCase, rows: int, seed: int) -> tuple[dict[str, pa.Array], Sums]:
    table = random_rows(rows, seed)
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    sort = pc.sum(pc.bit_wise_and(columns["sort"], _LOW_BITS)).as_py()
    texts = {"key": columns["key"], "sort": columns["sort"].cast(pa.string())}
    texts["value"] = columns["value"]
    if not case.has_maps:
        return texts, Sums(rows, sort)
    random = np.random.default_rng(seed)
    is_null = pa.array(random.random(rows) < 0.3)
    texts["value"] = pc.if_else(is_null, None, texts["value"])
    values = [random.integers(0, _MAP_VALUE_MAX, rows) for _ in range(3)]
    entries = random.integers(0, 4, rows)
    members = [
        pc.binary_join_element_wise(f'"{name}":', pa.array(each).cast(pa.string()), "")
        for name, each in zip(("size", "weight", "visits"), values, strict=True)
    ]
    choices = [pc.binary_join_element_wise(*members[:number], ",") for number in (1, 2, 3)]
    inner = pc.choose(pa.array(entries), pa.array([""] * rows), *choices)
    texts["props"] = pc.binary_join_element_wise("{", inner, "}", "")
    total = sum(int(each[entries > place].sum()) for place, each in enumerate(values))
    return texts, Sums(rows, sort, pc.sum(is_null).as_py(), total)


def _write_lines(columns: dict[str, pa.Array], case: TextCase) -> Iterator[bytes]:
    if case.is_json:
        parts = []
        for place, (name, values) in enumerate(columns.items()):
            quote = "" if name in ("sort", "props") else '"'
            written = pc.binary_join_element_wise(quote, values, quote, "")
            parts += [f'{"," if place else "{"}"{name}":', pc.fill_null(written, "null")]
        lines = pc.binary_join_element_wise(*parts, "}\n", "")
    else:
        lines = pc.binary_join_element_wise(*columns.values(), ",")
        lines = pc.binary_join_element_wise(lines, "\n", "")
    yield lines.buffers()[2].to_pybytes()[: lines.offset + sum_lengths(lines)]


def sum_lengths(lines: pa.Array) -> int:
    """Returns the number of bytes of the lines."""
    return int(pc.sum(pc.binary_length(lines)).as_py())
