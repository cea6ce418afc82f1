"""Requests that Amazon's federation SDK wrote, and the table of all types that they are about.

`tests/approved/recorded/athena_requests.jsonl` has a request a line, of serialisation versions 2
to 6. Athena returns a connector's splits and schemas unchanged. Those in the file are of another
connector, so tests replace them.
"""

import datetime as dt
import json
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from sleeper.admin.tables import create_table
from sleeper.datafiles.arrow import arrow_schema
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.schema.model import schema_from_json

Json = dict[str, Any]
VERSIONS = (2, 3, 4, 5, 6)
_FILE = Path(__file__).parents[2] / "approved" / "recorded" / "athena_requests.jsonl"

SCHEMA = """{"rowKeyFields":[{"name":"Id","type":"LongType"}],
 "sortKeyFields":[{"name":"at","type":"LongType"}],
 "valueFields":[{"name":"i","type":"IntType","nullable":true},
  {"name":"s","type":"StringType","nullable":true},
  {"name":"b","type":"ByteArrayType","nullable":true},
  {"name":"yes","type":"BooleanType","nullable":true},
  {"name":"f","type":"FloatType","nullable":true},
  {"name":"d","type":"DoubleType","nullable":true},
  {"name":"ts","type":"TimestampType","nullable":true},
  {"name":"day","type":"DateType","nullable":true},
  {"name":"dec","type":{"DecimalType":{"precision":9,"scale":2}},"nullable":true},
  {"name":"big","type":{"DecimalType":{"precision":38,"scale":10}},"nullable":true},
  {"name":"ls","type":{"ListType":{"elementType":"StringType"}},"nullable":true},
  {"name":"li","type":{"ListType":{"elementType":"LongType"}},"nullable":true},
  {"name":"lt","type":{"ListType":{"elementType":"TimestampType"}},"nullable":true},
  {"name":"m","type":{"MapType":{"keyType":"StringType","valueType":"LongType"}},"nullable":true},
  {"name":"md","type":{"MapType":{"keyType":"LongType","valueType":"DoubleType"}},
   "nullable":true}]}"""


def _dates(*texts: str) -> tuple[dt.date, ...]:
    return tuple(map(dt.date.fromisoformat, texts))


def _decimals(texts: str) -> tuple[Decimal, ...]:
    return tuple(map(Decimal, texts.split()))


_TIME = dt.datetime(1969, 12, 31, 23, 59, 59, 998_500, tzinfo=dt.UTC)
# The bounds of the requests, their neighbours, and values that types compare in ways of their own.
_POOLS: dict[str, tuple[Any, ...]] = {
    "i": (-1499591369, -437787613, 1382656421, 1611203271, -(2**31), -1, 0, 1),
    "s": ("a", "", "\u00e9\0x", "\U0001f600", "value 3", "value 4", "a\0"),
    "b": (b"", b"\xea\xe9\xbb;\x03", b"\x7f", b"\x7f\0", b"\xff", b"\xea\xe9\xbb;"),
    "yes": (True, False),
    "f": (0.0, -0.0, 3.25, 1.5, 1.25, float("nan"), float("inf"), float("-inf")),
    "d": (2.5, 2.4999999999999996, float("nan"), -0.0, float("inf"), 2.5000000000000004),
    "ts": tuple(_TIME + dt.timedelta(microseconds=n) for n in (0, 500, 1499, 2000, 10**15)),
    "day": _dates("1950-01-01", "2029-05-29", "1970-01-01", "1969-12-31", "2029-05-30"),
    "dec": _decimals("-841326.45 -663136.30 -447133.79 -157790.44 49447.61 0.00 -0.01 -841326.44"),
    "big": _decimals(
        "-44728708892436202.6234315741 -44728708892436202.6234315740 0.0000000000 "
        "-9999999999999999999999999999.9999999999"
    ),
    "ls": ([], ["a", ""], ["\U0001f600"]),
    "li": ([1], [], [-(2**63), 2**63 - 1]),
    "lt": ([_TIME], []),
    "m": ([], [("a", 1), ("", -1)]),
    "md": ([(1, 0.5)], []),
}
_ROWS = 300
_NULL_EVERY = 7


@cache
def recorded_requests() -> tuple[tuple[int, Json], ...]:
    """Returns the version and the request of each line."""
    lines = map(json.loads, _FILE.read_text().splitlines())
    return tuple((line["version"], line["request"]) for line in lines)


def first_request(version: int, kind: str) -> Json | None:
    """Returns the version's first request of the kind."""
    every = (raw for number, raw in recorded_requests() if number == version)
    return next((raw for raw in every if raw["@type"] == kind), None)


@cache
def table_rows() -> tuple[Json, ...]:
    """Returns the table's rows. The pools have other lengths, so their values mix."""
    return tuple(map(_row, range(_ROWS)))


def _row(number: int) -> Json:
    row: Json = {"Id": number, "at": -number}
    for place, (name, pool) in enumerate(_POOLS.items()):
        is_null = (number + place) % _NULL_EVERY == 0
        row[name] = None if is_null else pool[number % len(pool)]
    return row


def make_types_table(instance: Instance) -> None:
    """Creates the table of three leaves, whose name is not Athena's."""
    create_table(instance, "Types", SCHEMA, split_points=[50, 200])
    columns = arrow_schema(schema_from_json(SCHEMA))
    ingest_rows(instance, "Types", [pa.RecordBatch.from_pylist(list(table_rows()), columns)])
