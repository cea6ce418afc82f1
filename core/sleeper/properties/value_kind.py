"""Kinds of property values: how text becomes a typed value, and back."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from sleeper.clock import format_duration, parse_duration
from sleeper.processing.enrichment import parse_enrichment
from sleeper.processing.model import Aggregation, Filter
from sleeper.processing.restriction import parse_callers
from sleeper.processing.text import (
    format_aggregations,
    format_filters,
    parse_aggregations,
    parse_table_filters,
)
from sleeper.schema.model import Schema, schema_from_json, schema_to_json

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

_INTEGER = re.compile(r"-?\d{1,19}", re.ASCII)
_BYTES = re.compile(r"(\d{1,19})([KMGTPE]?)", re.ASCII)
CLASS_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")
_SUFFIXES = ("", "K", "M", "G", "T", "P", "E")


@dataclass(frozen=True, slots=True)
class ValueKind(Generic[T]):
    """A kind of value. `parse` raises ValueError for invalid text; `expected` describes it."""

    expected: str
    parse: Callable[[str], T]
    format: Callable[[T], str]


def whole_number(at_least: int = 0, at_most: int = INT_MAX) -> ValueKind[int]:
    """Returns the kind of integers between two inclusive bounds."""

    def parse(text: str) -> int:
        if not _INTEGER.fullmatch(text) or not at_least <= int(text) <= at_most:
            raise ValueError(text)
        return int(text)

    return ValueKind(f"an integer from {at_least} to {at_most}", parse, str)


def duration() -> ValueKind[int]:
    """Returns the kind of durations: milliseconds, as text such as `12h` or `7d`."""

    def parse(text: str) -> int:
        milliseconds = parse_duration(text)
        if not milliseconds:
            raise ValueError(text)
        return milliseconds

    return ValueKind("a duration such as 30m, 12h or 7d", parse, format_duration)


def number_among(*numbers: int) -> ValueKind[int]:
    """Returns the kind of these integers."""
    by_text = {str(number): number for number in numbers}
    return ValueKind("one of " + ", ".join(by_text), lambda value: by_text[value], str)


def byte_count(at_least: int = 1) -> ValueKind[int]:
    """Returns the kind of byte counts. Suffixes K to E are powers of 1024."""

    def parse(text: str) -> int:
        match = _BYTES.fullmatch(text.upper())
        count = int(match[1]) << (10 * _SUFFIXES.index(match[2])) if match else -1
        if not at_least <= count <= LONG_MAX:
            raise ValueError(text)
        return count

    return ValueKind(
        f"a number of bytes of at least {_format_bytes(at_least)}, such as 512M or 1G",
        parse,
        _format_bytes,
    )


def _format_bytes(count: int) -> str:
    power = 0
    while count and power < len(_SUFFIXES) - 1 and count % 1024 == 0:
        count //= 1024
        power += 1
    return f"{count}{_SUFFIXES[power]}"


def _parse_flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


FLAG: ValueKind[bool] = ValueKind("true or false", _parse_flag, lambda flag: str(flag).lower())


def text(length_max: int = 10_000) -> ValueKind[str]:
    """Returns the kind of texts up to a length."""

    def parse(value: str) -> str:
        if len(value) > length_max:
            raise ValueError(value)
        return value

    return ValueKind(f"text of at most {length_max} characters", parse, str)


def pattern(regex: str, expected: str) -> ValueKind[str]:
    """Returns the kind of texts that match the whole regular expression."""
    compiled = re.compile(regex, re.ASCII)

    def parse(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(value)
        return value

    return ValueKind(expected, parse, str)


def choice(members: type[E], other_names: Mapping[str, E] | None = None) -> ValueKind[E]:
    """Returns the kind of an enum's values, case-insensitive. Other names are read too."""
    by_value = {str(member.value).lower(): member for member in members} | dict(other_names or {})
    return ValueKind(
        "one of " + ", ".join(str(member.value) for member in members),
        lambda value: by_value[value.lower()],
        lambda member: str(member.value),
    )


def members(names: Sequence[str], other_names: Mapping[str, str]) -> ValueKind[tuple[str, ...]]:
    """Returns the kind of comma-separated lists of these names; `None` is the empty one.

    An empty list is written as a comma, because an empty value counts as unset.
    """
    by_text = {name.lower(): name for name in names}
    by_text |= {other.lower(): name for other, name in other_names.items()}

    def parse(value: str) -> tuple[str, ...]:
        given = _parse_list(value.lower())
        return () if given == ("none",) else tuple(by_text[each] for each in given)

    return ValueKind(
        "None, or a comma-separated list of " + ", ".join(names),
        parse,
        lambda chosen: ",".join(chosen) or ",",
    )


def class_name(what: str) -> ValueKind[str]:
    """Returns the kind of a registered name, without a Java package before it.

    The kind does not check that the name is registered.
    """

    def parse(value: str) -> str:
        name = value.rpartition(".")[2]
        if not CLASS_NAME.fullmatch(name):
            raise ValueError(value)
        return name

    return ValueKind(f"the name of {what}, with or without a Java package", parse, str)


def _parse_list(value: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in value.split(",") if item.strip())


STRING_LIST: ValueKind[tuple[str, ...]] = ValueKind(
    "a comma-separated list", _parse_list, lambda items: ",".join(items)
)


def list_of(kind: ValueKind[T]) -> ValueKind[tuple[T, ...]]:
    """Returns the kind of comma-separated lists of values of a kind."""
    return ValueKind(
        f"a comma-separated list; each is {kind.expected}",
        lambda value: tuple(map(kind.parse, _parse_list(value))),
        lambda items: ",".join(map(kind.format, items)),
    )


def _parse_tags(value: str) -> tuple[tuple[str, str], ...]:
    items = [item.strip() for item in value.split(",")]
    if len(items) % 2 or not all(items[::2]):
        raise ValueError(value)
    return tuple(zip(items[::2], items[1::2], strict=True))


TAGS: ValueKind[tuple[tuple[str, str], ...]] = ValueKind(
    "a list key1,value1,key2,value2",
    _parse_tags,
    lambda tags: ",".join(f"{key},{value}" for key, value in tags),
)

# Values have commas too, names always begin with `spark.`.
_BETWEEN_SETTINGS = re.compile(r",(?=\s*spark\.)")
_SPARK_SETTING = re.compile(r"(spark\.[A-Za-z0-9._-]+)=(.*)", re.DOTALL)


def parse_spark_setting(value: str) -> tuple[str, str]:
    """Returns the name and the value of `NAME=VALUE`. ValueError for any other text."""
    match = _SPARK_SETTING.fullmatch(value.strip())
    if match is None:
        raise ValueError(value)
    return match[1], match[2].strip()


def _parse_spark_settings(value: str) -> tuple[tuple[str, str], ...]:
    items = [item for item in _BETWEEN_SETTINGS.split(value) if item.strip()]
    return tuple(parse_spark_setting(item) for item in items)


SPARK_SETTINGS: ValueKind[tuple[tuple[str, str], ...]] = ValueKind(
    "a list spark.NAME=VALUE,spark.NAME=VALUE",
    _parse_spark_settings,
    lambda settings: ",".join(f"{name}={value}" for name, value in settings),
)

FILTERS_TEXT: ValueKind[tuple[Filter, ...]] = ValueKind(
    "filters such as ageOff(field,millis)", parse_table_filters, format_filters
)
AGGREGATIONS_TEXT: ValueKind[tuple[Aggregation, ...]] = ValueKind(
    "aggregations such as sum(count),max(last)", parse_aggregations, format_aggregations
)


def _callers_json(text: str) -> str:
    parse_callers(text)
    return text


def _enrichment_json(text: str) -> str:
    parse_enrichment(text)
    return text


CALLERS_JSON: ValueKind[str] = ValueKind("an object for each caller", _callers_json, str)
ENRICHMENT_JSON: ValueKind[str] = ValueKind("a list of lookups", _enrichment_json, str)
SCHEMA_JSON: ValueKind[Schema] = ValueKind("schema JSON", schema_from_json, schema_to_json)


def optional(kind: ValueKind[T]) -> ValueKind[T | None]:
    """Returns the kind of an optional value, None if unset."""
    return ValueKind(
        kind.expected, kind.parse, lambda value: "" if value is None else kind.format(value)
    )
