"""Tests of keys and values that follow from the data."""

from typing import Any

import pytest

from sleeper.adjunct.contents.keys import KeyCodec
from sleeper.adjunct.contents.values import ValueCodec
from sleeper.adjunct.contents.writers import DocumentWriter, find_layout
from sleeper.adjunct.extraction import Envelope
from sleeper.errors import DataError, InvalidRequestError
from sleeper.schema.model import PrimitiveType

PLACE = Envelope("prices", "3", "17", "18", None, None)


@pytest.mark.parametrize(
    ("key", "types"),
    [
        (7, [PrimitiveType.LONG]),
        ("a", [PrimitiveType.STRING]),
        (b"a", [PrimitiveType.BYTE_ARRAY]),
        (("a", 7), [PrimitiveType.STRING, PrimitiveType.LONG]),
    ],
)
def test_the_first_key_gives_the_layout(key: Any, types: list[PrimitiveType]) -> None:
    writer = DocumentWriter("prices")
    assert writer.layout() is None
    writes = writer.put([(key, {"n": [1, None]}, PLACE)])
    layout = writer.layout()
    assert layout is not None
    assert layout.key_types() == types
    assert KeyCodec("prices", layout).decode(writes.keys[0]) == key
    assert writes.values[0] is not None
    assert ValueCodec(layout).decode(writes.values[0]) == {"n": [1, None]}


def test_a_null_key_is_ignored_and_a_null_value_deletes() -> None:
    writes = DocumentWriter("prices").put([(None, 1, PLACE), ("a", None, PLACE)])
    assert (writes.keys, writes.values) == ([b"\x01a"], [None])


@pytest.mark.parametrize("key", [1.5, True, None, {}, (), ("a", 1.5), [1]])
def test_keys_of_other_types_are_refused(key: Any) -> None:
    with pytest.raises(InvalidRequestError, match="expected an integer, text, bytes"):
        find_layout(key)


@pytest.mark.parametrize("key", ["a", 2**63, ("a",), True])
def test_the_error_of_a_key_names_its_place(key: Any) -> None:
    writer = DocumentWriter("prices", find_layout(1))
    place = "store 'prices': prices, partition 3, offset 17: "
    with pytest.raises(DataError, match=place) as raised:
        writer.put([(key, 1, PLACE)])
    assert str(raised.value).count("store 'prices'") == 1


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(DataError, match="partition 3, offset 17: "):
        DocumentWriter("prices").put([("\ud800", 1, PLACE)])


@pytest.mark.parametrize("value", [object(), 2**64, "\ud800", {"a": object()}])
def test_the_error_of_a_value_names_its_place(value: Any) -> None:
    with pytest.raises(DataError, match="partition 3, offset 17: value of type"):
        DocumentWriter("prices").put([("a", value, PLACE)])
