"""The JSON form of dataclasses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, NewType

import pytest

from sleeper.errors import DataError, InvalidRequestError
from sleeper.json_codec import AsList, Conversion, JsonCodec, Member, camel_case
from sleeper.lenient_json import LenientFlag, LenientText, OptionalText, to_whole_number

Id = NewType("Id", str)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Point:
    x: int
    y: int | None


@dataclass(frozen=True)
class Size:
    width: int
    is_exact: bool


@dataclass(frozen=True)
class Shape:
    shape_id: Id
    points: Annotated[tuple[Annotated[Point, AsList], ...], Member("corners", last=True)]
    size: Annotated[Size, Member(flat=True)]
    colour: Colour
    key: int | str | bytes
    name: Annotated[str | None, Member(optional=True)] = None
    pair: tuple[str, int] = ("a", 1)
    notes: Any = None
    area: Annotated[int | None, Member(stored=False)] = None


CODEC = JsonCodec(Shape, camel_case)
SHAPE = Shape(Id("s"), (Point(1, None), Point(2, 3)), Size(4, True), Colour.RED, b"\0")
RAW: dict[str, Any] = {
    "shapeId": "s",
    "width": 4,
    "isExact": True,
    "colour": "red",
    "key": {"b": "AA=="},
    "pair": ["a", 1],
    "notes": None,
    "corners": [[1, None], [2, 3]],
}


def test_members_keep_their_order_and_read_back():
    assert list(CODEC.to_json(SHAPE).items()) == list(RAW.items())
    assert CODEC.from_json({**RAW, "unknown": 1, "name": None}, "shape") == SHAPE


def test_field_names_are_member_names_without_a_rule():
    assert JsonCodec(Size).to_json(Size(1, False)) == {"width": 1, "is_exact": False}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"width": "4"}, "shape: \"width\" is '4' (expected an integer)"),
        ({"width": True}, 'shape: "width" is True (expected an integer)'),
        ({"shapeId": None}, 'shape: "shapeId" is None (expected text)'),
        ({"name": 1}, 'shape: "name" is 1 (expected text)'),
        ({"colour": "green"}, "shape: \"colour\" is 'green' (expected one of red, blue)"),
        (
            {"corners": [[1, 2], [1, "2"]]},
            "shape: \"corners[1][1]\" is '2' (expected an integer)",
        ),
        ({"corners": [[1]]}, 'shape: "corners[0]" is [1] (expected a list of 2)'),
        ({"corners": 1}, 'shape: "corners" is 1 (expected a list)'),
        (
            {"key": 1.5},
            'shape: "key" is 1.5 (expected an integer or text or an object with base64 as "b")',
        ),
    ],
)
def test_errors_name_the_member_and_the_expected_type(change, problem):
    with pytest.raises(InvalidRequestError) as error:
        CODEC.from_json({**RAW, **change}, "shape")
    assert str(error.value) == problem


def test_missing_members_and_other_values_are_errors_of_the_requested_type():
    with pytest.raises(DataError, match=r'^shape: "shapeId" is missing \(expected text\)$'):
        CODEC.from_json({}, "shape", DataError)
    with pytest.raises(InvalidRequestError, match=r"^shape: it is \[\] \(expected an object\)$"):
        CODEC.from_json([], "shape")


@dataclass(frozen=True)
class Request:
    texts: Mapping[str, LenientText]
    count: Annotated[int, Conversion(to_whole_number), Member(other_names=("number",))]
    names: Annotated[Sequence[str], Member(optional=True)] = field(default_factory=tuple)
    title: OptionalText = None
    is_open: LenientFlag = True


REQUESTS = JsonCodec(Request, camel_case, ("texts", "count", "number", "names", "title", "isOpen"))


def test_lenient_values_are_converted():
    text = '{"texts":{"a":5.0,"b":true,"c":null},"number":"7.0","title":null,"isOpen":"FALSE"}'
    request = REQUESTS.parse(text, "request")
    assert request == Request({"a": "5", "b": "true"}, 7, (), None, False)
    # A default that a factory makes is written.
    assert REQUESTS.format(Request({"a": "5"}, 7)) == '{"texts":{"a":"5"},"count":7,"names":[]}'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "request is not JSON: "),
        ('{"extra":1}', "request: unknown member 'extra' (expected texts, "),
        ('{"texts":[]}', 'request: "texts" is [] (expected an object)'),
        ('{"texts":{"a":[]}}', "request: \"texts['a']\" is [] (expected text)"),
        ('{"texts":{},"count":true}', 'request: "count" is True (expected an integer)'),
        (
            '{"texts":{},"count":1,"isOpen":"no"}',
            "request: \"isOpen\" is 'no' (expected true or false)",
        ),
        (
            '{"texts":{},"count":1,"title":"\\u0000"}',
            "request: \"title\" is '\\x00' (expected Unicode text without NUL)",
        ),
    ],
)
def test_errors_of_lenient_values_name_the_member(text, problem):
    with pytest.raises(InvalidRequestError) as raised:
        REQUESTS.parse(text, "request")
    assert str(raised.value).startswith(problem)
