"""The text and JSON forms of filters, aggregations and iterators.

`ageOff(field,millis)`, `jsonContains(field,json)` and `op(field)`, with commas between them. A
field name with a comma, a parenthesis or a quote in it is put in double quotes, and a quote in it
doubled. A JSON value ends at the first parenthesis outside of its texts.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from sleeper.errors import InvalidRequestError
from sleeper.json_codec import Conversion, JsonCodec
from sleeper.lenient_json import OptionalStrictText, to_optional_text
from sleeper.processing.json_argument import read_json_argument
from sleeper.processing.model import (
    AgeOff,
    Aggregation,
    AggregationOp,
    Filter,
    IteratorCall,
    JsonContains,
    Processing,
    check_table_filters,
)

_AGE_MS_MAX = 2**63 - 1
_DIGITS_MAX = 19
# Possessive quantifiers never backtrack, so a match takes linear time. Callers send this text,
# and a match holds the interpreter's lock.
_FIELD = r'\s*+\(\s*+(?:"(?P<quoted>(?:[^"]|"")*+)"|(?P<field>[^,()"]*+))\s*+'
_END = r"\)\s*+(?:,|\Z)"
_CALL = re.compile(rf"\s*+(?P<name>\w++){_FIELD}(?:,(?P<argument>[^,()\"]*+))?{_END}")
_JSON_CALL = re.compile(
    rf'\s*+(?P<name>(?i:jsonContains)){_FIELD},(?P<argument>(?:[^()"]|"(?:[^"\\]|\\.)*+")*+){_END}'
)
_FILTERS = "ageOff(field,millis) or jsonContains(field,json)"
_BLANK = re.compile(r"\s*+\Z")
_OPS = {op.value: op for op in AggregationOp}
_PLAIN_NAME = re.compile(r'[^,()"\s]([^,()"]*[^,()"\s])?')


def parse_filters(text: str) -> tuple[Filter, ...]:
    """Parses filters, in order. InvalidRequestError names the invalid part."""
    filters: list[Filter] = []
    for name, field, argument in _calls(text, f"a filter such as {_FILTERS}", _JSON_CALL):
        match name.lower():
            case "ageoff":
                filters.append(AgeOff(field, _to_age_ms(field, argument)))
            case "jsoncontains":
                value = read_json_argument(f"filter jsonContains({field})", argument)
                filters.append(JsonContains(field, value))
            case _:
                raise InvalidRequestError(f"unknown filter {name!r} (expected {_FILTERS})")
    return tuple(filters)


def parse_table_filters(text: str) -> tuple[Filter, ...]:
    """Parses filters of a table. InvalidRequestError for those of queries."""
    filters = parse_filters(text)
    check_table_filters(filters)
    return filters


def _to_age_ms(field: str, argument: str | None) -> int:
    if argument is None or not argument.isascii() or not argument.isdigit():
        raise InvalidRequestError(
            f"filter ageOff({field}): invalid age: "
            f"{'none' if argument is None else repr(argument[:200])} "
            "(expected an integer, in milliseconds)"
        )
    # Python does not convert texts of thousands of digits.
    digits = argument.lstrip("0") or "0"
    if len(digits) > _DIGITS_MAX or int(digits) > _AGE_MS_MAX:
        raise InvalidRequestError(f"filter ageOff({field}): {argument[:200]} is more than 2^63-1")
    return int(digits)


def parse_aggregations(text: str) -> tuple[Aggregation, ...]:
    """Parses aggregations, in order. InvalidRequestError names the invalid part."""
    aggregations = []
    for name, field, argument in _calls(text, "an aggregation such as sum(field)"):
        op = parse_operation(name)
        if argument is not None:
            raise InvalidRequestError(
                f"aggregation {name}({field}) takes one field, not {argument[:200]!r}"
            )
        aggregations.append(Aggregation(op, field))
    return tuple(aggregations)


def parse_operation(name: str) -> AggregationOp:
    """Returns the operation of an aggregation. InvalidRequestError if there is none of the name."""
    op = _OPS.get(name.lower())
    if op is None:
        raise InvalidRequestError(
            f"unknown aggregation: {name!r} (expected one of {', '.join(_OPS)})"
        )
    return op


def format_filters(filters: tuple[Filter, ...]) -> str:
    """Returns the text that `parse_filters` reads."""
    return ",".join(f"{f.name}({_quoted(f.field)},{_argument(f)})" for f in filters)


def _argument(each: Filter) -> str:
    return str(each.age_ms) if isinstance(each, AgeOff) else each.json


def format_aggregations(aggregations: tuple[Aggregation, ...]) -> str:
    """Returns the text that `parse_aggregations` reads."""
    return ",".join(f"{a.op.value}({_quoted(a.field)})" for a in aggregations)


FiltersText = Annotated[
    tuple[Filter, ...],
    Conversion(lambda raw: parse_filters(to_optional_text(raw) or ""), format_filters),
]
"""Filters as a member of a message: text, or null for none."""
AggregationsText = Annotated[
    tuple[Aggregation, ...],
    Conversion(lambda raw: parse_aggregations(to_optional_text(raw) or ""), format_aggregations),
]
"""Aggregations as a member of a message: text, or null for none."""


def iterator_call(name: str | None, config: str | None) -> IteratorCall | None:
    """Returns the call of an iterator, or None without a name.

    A Java package before the name is removed: queries and properties of gchq/sleeper have one.
    """
    if not name:
        if config:
            raise InvalidRequestError(f"iterator config {config[:200]!r} is given without a name")
        return None
    return IteratorCall(name.rpartition(".")[2], config or "")


@dataclass(frozen=True, slots=True)
class _IteratorText:
    name: OptionalStrictText = None
    config: OptionalStrictText = None


def iterator_members(name: str, config: str) -> Conversion:
    """Returns the conversion of a flat iterator call, with these members."""
    codec = JsonCodec(_IteratorText, {"name": name, "config": config}.__getitem__)

    def decode(raw: dict[str, Any]) -> IteratorCall | None:
        text = codec.decode(raw)
        return iterator_call(text.name, text.config)

    return Conversion(decode, lambda call: {name: call.name, config: call.config} if call else {})


def processing_to_json(processing: Processing) -> str:
    """Returns the JSON that the state stores, without empty members."""
    texts = {
        "filters": format_filters(processing.filters),
        "aggregations": format_aggregations(processing.aggregations),
        "iterator": processing.iterator.name if processing.iterator else "",
        "iterator_config": processing.iterator.config if processing.iterator else "",
    }
    return json.dumps({name: text for name, text in texts.items() if text})


@lru_cache(maxsize=256)
def processing_from_json(text: str) -> Processing:
    """Parses the JSON of `processing_to_json`. InvalidRequestError if it is invalid."""
    try:
        raw = json.loads(text)
        if not isinstance(raw, dict):
            raise TypeError("expected an object")
        unknown = raw.keys() - {"filters", "aggregations", "iterator", "iterator_config"}
        if unknown:
            raise InvalidRequestError(
                f"unknown members of processing: {', '.join(sorted(unknown))}"
            )
        return Processing(
            parse_filters(raw.get("filters", "")),
            parse_aggregations(raw.get("aggregations", "")),
            iterator_call(raw.get("iterator", ""), raw.get("iterator_config", "")),
        )
    except (ValueError, TypeError) as error:
        raise InvalidRequestError(f"processing cannot be read: {text[:200]!r}: {error}") from error


def _calls(
    text: str, expected: str, special: re.Pattern[str] = _CALL
) -> Iterator[tuple[str, str, str | None]]:
    """Yields each `name(field)` or `name(field,argument)`. `special` calls have their own form."""
    position = 0
    while not _BLANK.match(text, position):
        match = special.match(text, position) or _CALL.match(text, position)
        quoted = match and match["quoted"]
        field = (
            quoted.replace('""', '"') if quoted is not None else match and match["field"].strip()
        )
        if match is None or not field:
            raise InvalidRequestError(f"{text[position:].strip()[:200]!r} is not {expected}")
        argument = match["argument"]
        yield match["name"], field, None if argument is None else argument.strip()
        position = match.end()


def _quoted(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return name
    return '"' + name.replace('"', '""') + '"'
