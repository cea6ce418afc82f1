"""Functions that write and read values, derived from type annotations."""

import base64
import dataclasses
import itertools
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, NewType, Union, get_args, get_origin
from typing import get_type_hints as type_hints

from sleeper.errors import InvalidRequestError
from sleeper.json_codec.member import AsList, Conversion, Decoder, Encoder, Member
from sleeper.json_codec.mismatch import MISSING, InvalidError, MismatchError, show


def _unchanged(value: Any) -> Any:
    return value


def _present(raw: Any) -> Any:
    if raw is MISSING:
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
        return object_codec(hint, rename)
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
            raise InvalidError(error) from None

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
                error.path.append(f"[{show(name)}]")
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


def object_codec(cls: Any, rename: Callable[[str], str]) -> tuple[Encoder, Decoder]:
    """Returns the functions that write and read the JSON object of a dataclass."""
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
            content = raw.get(codec.name, MISSING)
            if codec.member.other_names:
                names = (codec.name, *codec.member.other_names)
                given = (raw[name] for name in names if raw.get(name) not in (None, ""))
                content = next(given, content)
            if codec.member.optional and (content is None or content is MISSING):
                continue
            try:
                values[codec.attribute] = codec.decode(content)
            except MismatchError as error:
                error.path.append(f".{codec.name}")
                raise
        return cls(**values)

    return decode
