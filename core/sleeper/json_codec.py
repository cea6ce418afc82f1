"""The JSON form of dataclasses, derived from their type annotations.

A dataclass is an object with one member per field, in field order. A tuple is a list, an enum its
value, and bytes are `{"b": <base64>}`. `Member` in an annotation changes how a field is stored:

    @dataclass(frozen=True)
    class Lease:
        job_ids: Annotated[tuple[str, ...], Member("jobs")]
        owner: Annotated[str | None, Member(optional=True)] = None

A mapping is an object; its null members are left out, unless its values may be anything. Readers
ignore unknown members, so that newer versions can add some. `Conversion` reads and writes a value
by functions, such as those of `sleeper.lenient_json`.
"""

import base64
import dataclasses
import itertools
import json
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Generic, NewType, TypeVar, Union, get_args, get_origin
from typing import get_type_hints as type_hints

from sleeper.errors import InvalidRequestError, SleeperError

T = TypeVar("T")
Encoder = Callable[[Any], Any]
Decoder = Callable[[Any], Any]
_SHOWN_CHARACTERS_MAX = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """How a field is stored, if not under its own name at its own place.

    An `optional` member is left out if it has the field's default, and may be missing or null.
    A default that a factory makes is not left out. A member that is missing, null or empty is read
    under its other names. A `flat` dataclass puts its members into the enclosing object. A `last`
    member follows all others. A field that is not `stored` always has its default when read.
    """

    name: str | None = None
    other_names: tuple[str, ...] = ()
    optional: bool = False
    flat: bool = False
    last: bool = False
    stored: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Conversion:
    """How a value is read and written, instead of by its type.

    `decode` raises MismatchError or InvalidRequestError. That of a `flat` member gets the object.
    """

    decode: Decoder
    encode: Encoder = lambda value: value


class AsList:
    """Marks a dataclass that is stored as the list of its fields' values."""


class JsonCodec(Generic[T]):
    """Converts dataclass instances to JSON values and back. Members have the fields' names.

    If the `known` members are given, all others are errors.
    """

    def __init__(
        self, cls: type[T], rename: Callable[[str], str] = str, known: Collection[str] = ()
    ) -> None:
        self._encode, self._decode = _object_codec(cls, rename)
        self._known = known

    def format(self, value: T) -> str:
        """Returns compact JSON text."""
        return json.dumps(self._encode(value), separators=(",", ":"))

    def parse(
        self, text: str, what: str, error_type: type[SleeperError] = InvalidRequestError
    ) -> T:
        """Returns the instance of JSON text, or raises an error as `from_json` does."""
        return self.from_json(parse_json(text, what, error_type), what, error_type)

    def to_json(self, value: T) -> dict[str, Any]:
        """Returns the members in their order."""
        encoded: dict[str, Any] = self._encode(value)
        return encoded

    def from_json(
        self, raw: Any, what: str, error_type: type[SleeperError] = InvalidRequestError
    ) -> T:
        """Returns the instance. An error names `what`, the member and the expected type.

        Errors that the class itself raises pass through.
        """
        try:
            return self.decode(raw)
        except MismatchError as error:
            raise error_type(f"{what}: {error}") from None

    def decode(self, raw: Any) -> T:
        """Returns the instance. Raises MismatchError, for use in a `Conversion`."""
        if self._known and isinstance(raw, dict):
            for name in raw:
                if name not in self._known:
                    problem = f"unknown member {_show(name)} (expected {', '.join(self._known)})"
                    raise _InvalidError(InvalidRequestError(problem))
        decoded: T = self._decode(raw)
        return decoded


def parse_json(
    text: str | bytes, what: str, error_type: type[SleeperError] = InvalidRequestError
) -> Any:
    """Returns the JSON value. An error names `what`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise error_type(f"{what} is not JSON: {error}") from error


def parse_object(text: str, what: str) -> dict[str, Any]:
    """Returns the members of a JSON object. InvalidRequestError names `what`."""
    raw = parse_json(text, what)
    if not isinstance(raw, dict):
        raise InvalidRequestError(f"{what}: {MismatchError(raw, 'an object')}")
    return raw


def camel_case(name: str) -> str:
    """Returns `table_id` as `tableId`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


_MISSING: Any = object()


class MismatchError(Exception):
    """A value in JSON is not the expected one. The codec adds the path of its member."""

    def __init__(self, raw: Any, expected: str) -> None:
        self.expected = expected
        self.path: list[str] = []
        shown = "missing" if raw is _MISSING else _show(raw)
        self.problem = f" is {shown} (expected {expected})"

    def __str__(self) -> str:
        path = "".join(reversed(self.path)).removeprefix(".")
        subject = f'"{path}"' if path else "it" if self.problem[0] == " " else ""
        return (subject + self.problem).removeprefix(": ")


class _InvalidError(MismatchError):
    """A conversion found the value invalid for a reason of its own."""

    def __init__(self, error: InvalidRequestError) -> None:
        super().__init__(None, "")
        self.problem = f": {error}"


def _show(raw: Any) -> str:
    try:
        return repr(raw)[:_SHOWN_CHARACTERS_MAX]
    except RecursionError:
        return "a deeply nested value"


def _unchanged(value: Any) -> Any:
    return value


def _present(raw: Any) -> Any:
    if raw is _MISSING:
        raise MismatchError(raw, "any value")
    return raw


def _codec(hint: Any, rename: Callable[[str], str]) -> tuple[Encoder, Decoder]:
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated_codec(hint, rename)
    if origin in (tuple, Sequence):
        return _tuple_codec(arguments if origin is tuple else (*arguments, ...), rename)
    if origin is Mapping:
        return _mapping_codec(arguments[1], rename)
    if origin in (Union, types.UnionType):
        return _union_codec(arguments, rename)
    if hint is Any:
        return _unchanged, _present
    if hint is bytes:
        return (lambda value: {"b": base64.b64encode(value).decode()}), _decode_bytes
    if dataclasses.is_dataclass(hint):
        return _object_codec(hint, rename)
    return _enum_codec(hint) if issubclass(hint, Enum) else (_unchanged, _scalar_decoder(hint))


def _annotated_codec(hint: Any, rename: Callable[[str], str]) -> tuple[Encoder, Decoder]:
    for mark in hint.__metadata__:
        if isinstance(mark, Conversion):
            return mark.encode, _conversion_decoder(mark)
    codec = _list_codec if AsList in hint.__metadata__ else _codec
    return codec(hint.__origin__, rename)


def _conversion_decoder(conversion: Conversion) -> Decoder:
    def decode(raw: Any) -> Any:
        try:
            return conversion.decode(raw)
        except InvalidRequestError as error:
            raise _InvalidError(error) from None

    return decode


_SCALARS = {str: "text", int: "an integer", bool: "true or false", type(None): "null"}


def _scalar_decoder(scalar: type) -> Decoder:
    expected = _SCALARS[scalar]

    def decode(raw: Any) -> Any:
        # bool is a subclass of int.
        if type(raw) is not scalar:
            raise MismatchError(raw, expected)
        return raw

    return decode


def _decode_bytes(raw: Any) -> bytes:
    try:
        return base64.b64decode(raw["b"], validate=True)
    except (TypeError, KeyError, ValueError):
        raise MismatchError(raw, 'an object with base64 as "b"') from None


def _enum_codec(enum: type[Enum]) -> tuple[Encoder, Decoder]:
    by_value = {each.value: each for each in enum}

    def decode(raw: Any) -> Enum:
        try:
            return by_value[raw]
        except (KeyError, TypeError):
            raise MismatchError(raw, f"one of {', '.join(map(str, by_value))}") from None

    return (lambda value: value.value), decode


def _union_codec(choices: tuple[Any, ...], rename: Callable[[str], str]) -> tuple[Encoder, Decoder]:
    types_present = [each for each in choices if each is not type(None)]
    if len(types_present) == 1:
        encode_present, decode_present = _codec(types_present[0], rename)
        return (
            (lambda value: None if value is None else encode_present(value)),
            (lambda raw: None if raw is None else decode_present(raw)),
        )
    codecs = {each: _codec(each, rename) for each in choices}

    def decode(raw: Any) -> Any:
        problems = []
        for _, decode_choice in codecs.values():
            try:
                return decode_choice(raw)
            except MismatchError as error:
                problems.append(error.expected)
        raise MismatchError(raw, " or ".join(problems))

    return (lambda value: codecs[type(value)][0](value)), decode


def _tuple_codec(
    arguments: tuple[Any, ...], rename: Callable[[str], str]
) -> tuple[Encoder, Decoder]:
    if arguments[-1] is Ellipsis:
        encode_each, decode_each = _codec(arguments[0], rename)
        if encode_each is _unchanged:
            return list, _sequence_decoder(itertools.repeat(decode_each), None)
        return (
            (lambda values: [encode_each(value) for value in values]),
            _sequence_decoder(itertools.repeat(decode_each), None),
        )
    codecs = [_codec(each, rename) for each in arguments]
    return (
        (lambda values: [encode(each) for (encode, _), each in zip(codecs, values, strict=True)]),
        _sequence_decoder([decode for _, decode in codecs], len(codecs)),
    )


def _sequence_decoder(decoders: Iterable[Decoder], length: int | None) -> Decoder:
    expected = "a list" if length is None else f"a list of {length}"

    def decode(raw: Any) -> Any:
        if type(raw) is not list or length not in (None, len(raw)):
            raise MismatchError(raw, expected)
        values: list[Any] = []
        try:
            # The length of `values` is the place of an error.
            for each, decode_each in zip(raw, decoders, strict=False):
                values.append(decode_each(each))
        except MismatchError as error:
            error.path.append(f"[{len(values)}]")
            raise
        return tuple(values)

    return decode


def _mapping_codec(hint: Any, rename: Callable[[str], str]) -> tuple[Encoder, Decoder]:
    encode_each, decode_each = _codec(hint, rename)

    def decode(raw: Any) -> Any:
        if type(raw) is not dict:
            raise MismatchError(raw, "an object")
        values = {}
        for name, each in raw.items():
            if each is None and hint is not Any:
                continue
            try:
                values[name] = decode_each(each)
            except MismatchError as error:
                error.path.append(f"[{_show(name)}]")
                raise
        return values

    return (lambda value: {name: encode_each(value[name]) for name in value}), decode


def _list_codec(cls: Any, rename: Callable[[str], str]) -> tuple[Encoder, Decoder]:
    names = [each.name for each in dataclasses.fields(cls)]
    hints = type_hints(cls, include_extras=True)
    encode, decode = _tuple_codec(tuple(hints[name] for name in names), rename)
    return (
        (lambda value: encode([getattr(value, name) for name in names])),
        (lambda raw: cls(*decode(raw))),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _FieldCodec:
    attribute: str
    name: str
    member: Member
    default: Any
    encode: Encoder
    decode: Decoder


def _field_codecs(cls: Any, rename: Callable[[str], str]) -> list[_FieldCodec]:
    hints = type_hints(cls, include_extras=True)
    codecs = []
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        marks = (m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Member))
        *_, member = Member(), *marks
        if member.stored:
            name = member.name or rename(field.name)
            encode, decode = _codec(hint, rename)
            codecs.append(_FieldCodec(field.name, name, member, field.default, encode, decode))
    # The sort is stable, so other members keep their order.
    return sorted(codecs, key=lambda codec: codec.member.last)


def _object_codec(cls: Any, rename: Callable[[str], str]) -> tuple[Encoder, Decoder]:
    codecs = _field_codecs(cls, rename)

    def encode(value: Any) -> dict[str, Any]:
        raw: dict[str, Any] = {}
        for codec in codecs:
            content = getattr(value, codec.attribute)
            if codec.member.flat:
                raw.update(codec.encode(content))
            elif not (codec.member.optional and content == codec.default):
                raw[codec.name] = codec.encode(content)
        return raw

    return encode, _object_decoder(cls, codecs)


def _object_decoder(cls: Any, codecs: list[_FieldCodec]) -> Decoder:
    def decode(raw: Any) -> Any:
        if type(raw) is not dict:
            raise MismatchError(raw, "an object")
        values: dict[str, Any] = {}
        for codec in codecs:
            if codec.member.flat:
                values[codec.attribute] = codec.decode(raw)
                continue
            content = raw.get(codec.name, _MISSING)
            if codec.member.other_names:
                names = (codec.name, *codec.member.other_names)
                given = (raw[name] for name in names if raw.get(name) not in (None, ""))
                content = next(given, content)
            if codec.member.optional and (content is None or content is _MISSING):
                continue
            try:
                values[codec.attribute] = codec.decode(content)
            except MismatchError as error:
                error.path.append(f".{codec.name}")
                raise
        return cls(**values)

    return decode
