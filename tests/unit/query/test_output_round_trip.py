"""Ingest reads the output of queries, with any values.

The rows that come back are equal bit for bit: with NaN, -0.0, every digit of decimals, and
years that no clock shows.
"""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sleeper.api import create_instance
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.sources.files import RowChecker
from sleeper.datafiles.sources.parquet import read_parquet
from sleeper.datafiles.sources.text import read_csv, read_json_lines
from sleeper.query.rows.output import ROW_OUTPUTS
from sleeper.schema.model import (
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
)
from tests.examples import examples
from tests.unit.datafiles.test_json_syntax import TEXTS, is_json

P = PrimitiveType
READERS = {"csv": read_csv, "jsonl": read_json_lines, "parquet": read_parquet}
OUTPUTS = {"csv": "csv", "jsonl": "json", "parquet": "parquet"}

_PRIMITIVES = [*P, DecimalType(38, 5), DecimalType(5, 0)]
KEYS = {P.INT, P.LONG, P.STRING, P.BYTE_ARRAY}
# The least of 64 bits is no time: numpy has it for none.
_LONG = st.integers(-(2**63) + 1, 2**63 - 1)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["", "NaN", '"NaN"', "\\", '{"float": "NaN"}', "null", "a,b", "\r\n", "é", "\x00"]
)


_VALUES: dict[PrimitiveType, st.SearchStrategy[Any]] = {
    P.INT: st.integers(-(2**31), 2**31 - 1),
    P.DATE: st.integers(-(2**31), 2**31 - 1),
    P.LONG: _LONG,
    P.TIMESTAMP: _LONG,
    P.STRING: _TEXT,
    P.BYTE_ARRAY: st.binary(max_size=8),
    P.BOOLEAN: st.booleans(),
    P.FLOAT: st.floats(width=32),
    P.DOUBLE: st.floats(),
    # Line ends in outputs are spaces.
    P.JSON: TEXTS.filter(is_json).map(lambda text: text.strip().translate({10: " ", 13: " "})),
}


def _values(kind: FieldType) -> st.SearchStrategy[Any]:
    """Returns values for Arrow, with times as integers."""
    match kind:
        case PrimitiveType():
            return _VALUES[kind]
        case DecimalType(precision, scale):
            most = 10**precision - 1
            return st.integers(-most, most).map(lambda n: _decimal(n, scale))
        case ListType(element):
            return st.lists(_values(element), max_size=4)
        case MapType(key, value):
            pairs = st.tuples(_values(key), _values(value))
            return st.lists(pairs, max_size=4, unique_by=lambda pair: repr(pair[0]))


def _decimal(number: int, scale: int) -> Decimal:
    return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))


_ELEMENTS = [each for each in _PRIMITIVES if each is not P.JSON]
_types = st.one_of(
    st.sampled_from(_PRIMITIVES),
    st.sampled_from(_ELEMENTS).map(ListType),
    st.tuples(st.sampled_from(_ELEMENTS), st.sampled_from(_ELEMENTS)).map(lambda t: MapType(*t)),
)
_names = st.sampled_from(["float", "NaN", 'a "b"', "a.b", "é", "[", ",", ":", "key"])


@st.composite
def _tables(draw: st.DrawFn) -> tuple[Schema, list[dict[str, Any]]]:
    names = draw(st.lists(_names, min_size=2, max_size=4, unique=True))
    key = Field(names[0], draw(st.sampled_from(sorted(KEYS, key=str))))
    values = tuple(Field(name, draw(_types), draw(st.booleans())) for name in names[1:])
    schema = Schema((key,), (), values)
    cells = {
        f.name: st.none() | _values(f.type) if f.nullable else _values(f.type)
        for f in schema.fields
    }
    return schema, draw(st.lists(st.fixed_dictionaries(cells), min_size=1, max_size=6))


def make_batch(schema: Schema, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Returns the rows, with times as integers."""
    target = arrow_schema(schema)
    columns = [
        pa.array([row[f.name] for row in rows], _as_numbers(f.type)).cast(f.type) for f in target
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _as_numbers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_map(kind):
        return pa.map_(_as_numbers(kind.key_type), _as_numbers(kind.item_type))
    return pa.list_(_as_numbers(kind.value_type)) if pa.types.is_list(kind) else kind


def bits(batches: Any) -> str:
    """Returns rows as text that differs if the rows differ; all NaN are equal."""
    kind = batches.schema
    numbers = pa.schema([pa.field(f.name, _as_numbers(f.type)) for f in kind])
    return repr(batches.cast(numbers).to_pylist())


NAN = float("nan")
FLOATS = Schema(
    (Field("key", P.STRING),),
    (),
    (
        Field("float", P.FLOAT, nullable=True),
        Field("doubles", ListType(P.DOUBLE)),
    ),
)
MAPS = Schema(
    (Field("key", P.STRING),),
    (),
    (
        Field("price", DecimalType(38, 5)),
        Field("bytes", MapType(P.BYTE_ARRAY, P.BYTE_ARRAY)),
        Field("ratios", MapType(P.DOUBLE, P.FLOAT), nullable=True),
    ),
)


@pytest.mark.parametrize("ending", READERS)
@given(schema_and_rows=_tables())
@example((FLOATS, [{"key": '"float":"NaN"', "float": NAN, "doubles": [NAN, -float("inf"), -0.0]}]))
@example(
    (
        MAPS,
        [
            {
                "key": "a",
                "price": _decimal(10**38 - 1, 5),
                "bytes": [(b"\xff", b"\x00\x01")],
                "ratios": [(NAN, float("inf")), (0.1, NAN)],
            },
            {"key": "b", "price": _decimal(-1, 5), "bytes": [], "ratios": None},
        ],
    )
)
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_rows_of_all_types_round_trip(
    tmp_path: Path, ending: str, schema_and_rows: tuple[Schema, list[dict[str, Any]]]
) -> None:
    schema, rows = schema_and_rows
    batch = make_batch(schema, rows)
    path = tmp_path / f"rows.{ending}"
    with path.open("wb") as sink:
        half = batch.num_rows // 2
        parts = [batch.slice(0, half), batch.slice(half)]
        ROW_OUTPUTS[OUTPUTS[ending]](batch.schema, parts, sink)
    read = READERS[ending](path, RowChecker(schema, str(path), None))
    assert bits(pa.Table.from_batches(read, batch.schema)) == bits(batch)


@pytest.mark.parametrize("ending", READERS)
def test_query_output_copies_a_table(tmp_path: Path, ending: str) -> None:
    fields = [Field(f"f{n}", kind, nullable=True) for n, kind in enumerate(_PRIMITIVES)]
    fields += [Field(f"l{n}", ListType(kind), nullable=True) for n, kind in enumerate(_ELEMENTS)]
    fields += [Field(f"m{n}", MapType(kind, kind)) for n, kind in enumerate(_ELEMENTS)]
    schema = Schema((Field("key", P.LONG),), (), tuple(fields))
    cells = {f.name: _edge(f.type) for f in fields}
    rows: list[dict[str, Any]] = [
        {"key": n} | {name: edges[n % len(edges)] for name, edges in cells.items()}
        for n in range(12)
    ]
    rows.append({"key": 99} | {f.name: None if f.nullable else [] for f in fields})
    with create_instance(tmp_path / "instance") as instance:
        first, second = (instance.create_table(name, schema) for name in ("first", "second"))
        first.ingest(make_batch(schema, rows))
        path = tmp_path / f"rows.{ending}"
        with path.open("wb") as sink, first.query() as result:
            ROW_OUTPUTS[OUTPUTS[ending]](result.schema, result, sink)
        assert second.ingest(path).rows == len(rows)
        assert bits(second.query().to_arrow()) == bits(first.query().to_arrow())


_EDGES: dict[PrimitiveType, list[Any]] = {
    P.INT: [-(2**31), -1, 2**31 - 1],
    P.DATE: [-(2**31), -1, 2**31 - 1],
    P.LONG: [-(2**63) + 1, 0, 2**63 - 1],
    P.TIMESTAMP: [-(2**63) + 1, 0, 2**63 - 1],
    P.STRING: ["", "NaN", 'é "\\\n\t\x01'],
    P.BYTE_ARRAY: [b"", b"\x00\xff", b"abc"],
    P.BOOLEAN: [True, False],
    P.FLOAT: [NAN, -float("inf"), -0.0, 0.10000000149011612, 3.4028234663852886e38],
    P.DOUBLE: [NAN, float("inf"), -0.0, 0.1, 5e-324, -1.7976931348623157e308],
    P.JSON: ["null", '{"a":[1.10,-0,1e400],"b":{}}', '"é \\"\\u0000"', str(10**40)],
}


def _edge(kind: FieldType) -> list[Any]:
    """The extreme values of types."""
    match kind:
        case PrimitiveType():
            return _EDGES[kind]
        case DecimalType(precision, scale):
            return [_decimal(n, scale) for n in (10**precision - 1, -1, 0)]
        case ListType(element):
            return [[], _edge(element)]
        case MapType(key, value):
            keys = {repr(k): k for k in _edge(key)}.values()
            return [[], list(zip(keys, _edge(value), strict=False))]
