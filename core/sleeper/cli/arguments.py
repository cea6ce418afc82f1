"""Arguments and options that several commands share, their parsing and shell completion."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper import DISTRIBUTION

if TYPE_CHECKING:
    from sleeper.instance import Instance
    from sleeper.properties.declaration import Catalogue

import csv
import json
import re
import sys
from collections.abc import Sequence

from sleeper.errors import InvalidRequestError
from sleeper.partitions.json import (
    ENCODED_MEMBER,
    first_field_region,
    key_value_from_json,
    region_from_json,
)
from sleeper.partitions.region import Region, key_region
from sleeper.processing.model import IteratorCall, Processing
from sleeper.processing.text import parse_aggregations, parse_filters
from sleeper.query.request import Query
from sleeper.schema.model import INT_RANGES, Field, KeyValue, Schema
from sleeper.statestore.version import Version

# Settings whose values Spark hides in its own logs and pages.
_SECRET = re.compile("secret|password|token|access[._]?key", re.IGNORECASE)
_HIDDEN = "<hidden>"

LIMIT_MAX = 10**15
"""The maximum of limits, which leaves room for calculations in 64 bits."""


class OutputKind(StrEnum):
    """The formats of a report."""

    TEXT = "text"
    JSON = "json"


@contextmanager
def use_instance(context: typer.Context) -> Iterator["Instance"]:
    """Opens the instance that `--instance` or SLEEPER_INSTANCE names, and closes it."""
    from sleeper.opening import open_instance
    from sleeper.storage.network_folder import describe_network_folder

    instance = open_instance(context.obj, accept_upgrade=accept_upgrade)
    if instance.background is not None:
        risk = describe_network_folder(instance.background.folder)
        if risk is not None:
            typer.echo(f"warning: {risk}", err=True)
    try:
        yield instance
    finally:
        instance.close()


def accept_upgrade(announcement: str) -> bool:
    """Asks whether to convert the states of an older version. False without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return typer.confirm(f"{announcement}. Convert now?", err=True)


def parse_settings(texts: Iterable[str]) -> dict[str, str]:
    """Parses `NAME=VALUE` arguments; an empty value unsets a property."""
    settings: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise typer.BadParameter(f"invalid setting: {text!r} (expected NAME=VALUE)")
        if name in settings:
            raise typer.BadParameter(f"duplicate name: {name}")
        settings[name] = value
    return settings


def complete_table(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the matching tables of a local instance."""
    return complete_names(
        context, incomplete, lambda instance: [ref.name for ref in instance.tables.index.list()]
    )


def complete_names(
    context: typer.Context, incomplete: str, read_names: Callable[["Instance"], Iterable[str]]
) -> list[str]:
    """Returns the matching names of a local instance, none if it cannot be read."""
    from sleeper.opening import open_instance

    where = context.obj or context.find_root().params.get("where")
    try:
        if str(where or "").startswith("aws:"):  # too slow for a completion
            return []
        instance = open_instance(where)
        try:
            return [name for name in read_names(instance) if name.startswith(incomplete)]
        finally:
            instance.close()
    except Exception:  # a completion cannot report errors
        return []


def complete_table_property(incomplete: str) -> list[str]:
    """Returns the matching properties of tables that users set."""
    from sleeper.properties import values  # noqa: F401 (declares the properties)
    from sleeper.properties.declaration import TABLE_PROPERTIES

    return _complete_property(incomplete, TABLE_PROPERTIES)


def complete_instance_property(incomplete: str) -> list[str]:
    """Returns the matching properties of instances that users set."""
    from sleeper.properties import values  # noqa: F401 (declares the properties)
    from sleeper.properties.declaration import INSTANCE_PROPERTIES

    return _complete_property(incomplete, INSTANCE_PROPERTIES)


def _complete_property(incomplete: str, declared: "Catalogue") -> list[str]:
    from sleeper.properties.declaration import SetBy

    return [p.name for p in declared if p.set_by is SetBy.USER and p.name.startswith(incomplete)]


TableName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the table.", autocompletion=complete_table)
]
SparkMaster = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="MASTER",
        help="Spark master, such as local[8] or spark://HOST:7077. Default: sleeper.spark.master, "
        "else all processors of this machine.",
    ),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="NAME=VALUE",
        help="Setting of Spark, besides those of sleeper.spark.conf. Repeatable.",
    ),
]


def spark_arguments(master: str | None, conf: Sequence[str] | None) -> list[str]:
    """Returns the arguments that repeat these options, without secrets: an error prints them."""
    settings = [part for each in conf or () for part in ("--conf", _hide_secret(each))]
    return [*([] if master is None else ["--master", master]), *settings]


def _hide_secret(setting: str) -> str:
    name, separator, _ = setting.partition("=")
    return f"{name}{separator}{_HIDDEN}" if _SECRET.search(name) else setting


def refuse_spark_options(other: str, master: str | None, conf: Sequence[str] | None) -> None:
    """Raises InvalidRequestError if a command has options of Spark besides this other one."""
    if master is not None or conf:
        raise InvalidRequestError(
            f"--master and --conf do not apply with {other} (expected sleeper.spark.master, which "
            "workers read)"
        )


@contextmanager
def needs_spark(work: str) -> Iterator[None]:
    """Raises InvalidRequestError if the block imports PySpark or pandas, and they are missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise InvalidRequestError(
            f"{work} needs {error.name}: pip install '{DISTRIBUTION}[spark]'"
        ) from error


OutputOption = Annotated[OutputKind, typer.Option("--output", "-o", help="Output format.")]


KeysOption = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        metavar="V[,V...]",
        help="Rows with this row key: CSV with a value per row key field, byte arrays as "
        "base64. Repeatable.",
    ),
]
RangesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--range",
        metavar="MIN:MAX",
        help="Rows whose first row key field is at least MIN and less than MAX. An empty bound "
        "is open. Quote a value that contains a colon: '\"a:b\":c'. Repeatable.",
    ),
]
RegionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--region",
        metavar="JSON",
        help="Rows in a region of several fields, with plain strings, and byte arrays as base64. "
        "Repeatable.",
    ),
]


def parse_selection(
    schema: Schema, keys: Sequence[str], ranges: Sequence[str], regions: Sequence[str]
) -> tuple[Region, ...]:
    """Returns the regions of all keys, ranges and regions.

    InvalidRequestError names the field and the invalid text.
    """
    return (
        *(parse_key(schema, text) for text in keys),
        *(parse_range(schema, text) for text in ranges),
        *_parse_regions(schema, regions),
    )


def parse_key(schema: Schema, text: str) -> Region:
    """Returns the region of one key: CSV with a value per row key field, byte arrays as base64."""
    return key_region(schema, parse_key_values(schema.row_keys, text))


def parse_key_values(fields: Sequence[Field], text: str) -> list[KeyValue]:
    """Returns the values of one key: CSV with a value per field, byte arrays as base64."""
    values = _parse_csv(text, ",")
    if len(values) != len(fields):
        names = ",".join(f.name for f in fields)
        raise InvalidRequestError(
            f"key {text!r} has {len(values)} values (expected one per row key field: {names})"
        )
    return [_parse_value(f, v) for f, v in zip(fields, values, strict=True)]


def parse_range(schema: Schema, text: str) -> Region:
    """Returns the region of `MIN:MAX` in the first row key field; an empty bound is open.

    A value that contains a colon is quoted as in CSV: `"a:b":c`.
    """
    return first_field_region(schema, *parse_bounds(schema.row_keys[0], text))


def parse_bounds(field: Field, text: str) -> tuple[KeyValue | None, KeyValue | None]:
    """Returns the values of `MIN:MAX`, None for an empty bound."""
    bounds = _parse_csv(text, ":")
    if len(bounds) != 2:
        raise InvalidRequestError(
            f"invalid range: {text!r} (expected MIN:MAX; quote a value that contains a colon)"
        )
    low, high = (_parse_value(field, bound) if bound else None for bound in bounds)
    return low, high


def _parse_csv(text: str, separator: str) -> list[str]:
    try:
        (cells,) = csv.reader([text], delimiter=separator, strict=True) if text else [[""]]
    except (csv.Error, ValueError) as error:
        raise InvalidRequestError(f"invalid CSV quoting: {text!r}: {error}") from error
    return cells


def _parse_value(field: Field, text: str) -> KeyValue:
    if field.type not in INT_RANGES:
        return key_value_from_json(field, text)
    try:
        number = int(text)
    except ValueError:
        raise InvalidRequestError(f"field {field.name!r}: {text!r} is not an integer") from None
    return key_value_from_json(field, number)


def build_query(
    schema: Schema,
    keys: Sequence[str] = (),
    ranges: Sequence[str] = (),
    regions: Sequence[str] = (),
    columns: str | None = None,
    limit: int | None = None,
    version: Version | None = None,
    filters: str = "",
    aggregations: str = "",
    iterator: IteratorCall | None = None,
) -> Query:
    """Returns a query of all keys, ranges and regions, or of the whole table if none is given.

    InvalidRequestError names the field and the invalid text.
    """
    all_regions = parse_selection(schema, keys, ranges, regions)
    processing = Processing(parse_filters(filters), parse_aggregations(aggregations), iterator)
    return Query(all_regions or None, _parse_columns(columns), limit, version, processing)


def _parse_regions(schema: Schema, texts: Iterable[str]) -> Iterable[Region]:
    """Yields the regions. Strings are plain by default, unlike those of messages."""
    for text in texts:
        try:
            raw = json.loads(text)
        except ValueError as error:
            raise InvalidRequestError(f"region {text!r} is not JSON: {error}") from error
        plain = {ENCODED_MEMBER: False, **raw} if isinstance(raw, dict) else raw
        yield region_from_json(schema, plain)


def _parse_columns(columns: str | None) -> tuple[str, ...] | None:
    if columns is None:
        return None
    try:
        (names,) = csv.reader([columns], strict=True)
    except (csv.Error, ValueError) as error:
        raise InvalidRequestError(f"invalid CSV quoting of columns: {columns!r}") from error
    return tuple(name.strip() for name in names)
