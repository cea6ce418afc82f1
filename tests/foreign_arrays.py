"""Arrays that no table can have: damaged ones, and ones with values that do not fit a field."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sleeper.datafiles.arrow import arrow_schema
from sleeper.schema.model import DecimalType, Field, ListType, MapType, PrimitiveType, Schema

P = PrimitiveType
SCHEMA = Schema(
    (Field("key", P.STRING),),
    (),
    (
        Field("text", P.STRING),
        Field("amount", DecimalType(5, 2)),
        Field("tags", ListType(P.STRING)),
        Field("counts", MapType(P.STRING, P.LONG)),
        Field("day", P.DATE),
        Field("time", P.TIMESTAMP),
    ),
)
KIND = arrow_schema(SCHEMA)
_BEYOND = 2**30


@dataclass(frozen=True, slots=True)
class BadArray:
    """An array of three rows for a field, of which the second is bad.

    Nothing but a check may read a damaged one.
    """

    field: str
    array: pa.Array
    is_damaged: bool = False

    @property
    def has_type_of_table(self) -> bool:
        """Whether only the values are bad."""
        return bool(self.array.type == KIND.field(self.field).type)

    def rows(self) -> pa.RecordBatch:
        """Returns rows with this array."""
        arrays = [self.array if name == self.field else GOOD.column(name) for name in KIND.names]
        return pa.RecordBatch.from_arrays(arrays, KIND.names)


def _offsets(*places: int) -> pa.Buffer:
    return pa.py_buffer(np.array(places, np.int32))


def _texts(content: bytes, *places: int) -> pa.Array:
    return pa.Array.from_buffers(pa.string(), 3, [None, _offsets(*places), pa.py_buffer(content)])


def _lists(elements: pa.Array, *places: int) -> pa.Array:
    kind = KIND.field("tags").type
    return pa.Array.from_buffers(kind, 3, [None, _offsets(*places)], children=[elements])


def _maps(values: list[int | None], keys: tuple[str, ...], *places: int) -> pa.Array:
    kind = KIND.field("counts").type
    entries = pa.StructArray.from_arrays(
        [pa.array(keys), pa.array(values, pa.int64())], fields=[kind.key_field, kind.item_field]
    )
    return pa.Array.from_buffers(kind, 3, [None, _offsets(*places)], children=[entries])


def _view() -> pa.Array:
    views = np.zeros((3, 4), np.int32)
    views[1] = [100, 0, 5, 7]
    return pa.Array.from_buffers(pa.string_view(), 3, [None, pa.py_buffer(views)])


def _amounts() -> pa.Array:
    numbers = [each.to_bytes(16, "little") for each in (1, 10**9, 2)]
    return pa.Array.from_buffers(
        KIND.field("amount").type, 3, [None, pa.py_buffer(b"".join(numbers))]
    )


GOOD = pa.RecordBatch.from_pylist(
    [
        {
            "key": key,
            "text": "é",
            "amount": 1,
            "tags": ["a", "b"],
            "counts": [("a", 1), ("b", 2)],
            "day": 1,
            "time": 1,
        }
        for key in "abc"
    ],
    KIND,
)
_UTF8 = b"a\xffb"
BAD: dict[str, BadArray] = {
    "text-not-utf8": BadArray("text", _texts(_UTF8, 0, 1, 2, 3)),
    "key-not-utf8": BadArray("key", _texts(_UTF8, 0, 1, 2, 3)),
    "text-offset-beyond": BadArray("text", _texts(b"abc", 0, _BEYOND, 2, 3), True),
    "text-offset-negative": BadArray("text", _texts(b"abc", 0, -_BEYOND, 2, 3), True),
    "key-offset-beyond": BadArray("key", _texts(b"abc", 0, _BEYOND, 2, 3), True),
    "view-beyond": BadArray("text", _view(), True),
    "index-beyond": BadArray(
        "text",
        pa.DictionaryArray.from_arrays(
            pa.array([0, _BEYOND, 0], pa.int32()), pa.array(["a"]), safe=False
        ),
        True,
    ),
    "decimal-digits": BadArray("amount", _amounts()),
    "list-with-null": BadArray("tags", _lists(pa.array(["a", None, "c"]), 0, 1, 2, 3)),
    "list-not-utf8": BadArray("tags", _lists(_texts(_UTF8, 0, 1, 2, 3), 0, 1, 2, 3)),
    "list-offset-beyond": BadArray("tags", _lists(pa.array(["a"] * 3), 0, _BEYOND, 2, 3), True),
    "list-of-damaged": BadArray("tags", _lists(_texts(b"abc", 0, _BEYOND, 2, 3), 0, 1, 2, 3), True),
    "map-with-null": BadArray("counts", _maps([1, None, 3], ("a", "a", "a"), 0, 1, 2, 3)),
    "map-with-equal-keys": BadArray("counts", _maps([1, 2, 3], ("a", "a", "a"), 0, 1, 3, 3)),
    "map-offset-beyond": BadArray("counts", _maps([1, 2, 3], ("a",) * 3, 0, _BEYOND, 2, 3), True),
    "date-with-time-of-day": BadArray("day", pa.array([0, 1, 0], pa.int64()).view(pa.date64())),
    "date-out-of-range": BadArray(
        "day", pa.array([0, 2**62 // 86_400_000 * 86_400_000, 0], pa.int64()).view(pa.date64())
    ),
    "time-out-of-range": BadArray("time", pa.array([0, 2**62, 0], pa.timestamp("s", "UTC"))),
}
