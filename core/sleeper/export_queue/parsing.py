"""Definitions of export queues from the texts of users."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from sleeper.errors import InvalidRequestError, did_you_mean
from sleeper.export_queue.definition import (
    BUCKETS_DEFAULT,
    BUFFER_BYTES_DEFAULT,
    TIMEOUT_SECONDS_DEFAULT,
    TRIES_DEFAULT,
    ExporterSettings,
    ExportQueue,
    ExportSource,
)
from sleeper.options import Option, secret
from sleeper.schema.model import Field, Schema
from sleeper.schema.type_text import parse_type
from sleeper.user_code.named import name_object

_NUMBERS = ("buckets", "buffer_bytes", "tries", "timeout_seconds")


@dataclass(frozen=True)
class NewQueue:
    """A queue as users write it.

    None is the default of a number, or the number of the queue that is replaced.
    """

    name: Annotated[str, Option("Name of the queue, without ':'.", "NAME", is_argument=True)]
    table: Annotated[str, Option("Table whose changes are exported.", "TABLE")]
    on: Annotated[
        str | None,
        Option(
            "Source of exports: transactions in Python that call export, changes of rows, "
            "versions of a snapshot table, or files that compactions wrote.",
            "transaction|ingest|snapshot|compaction",
        ),
    ] = None
    keys: Annotated[
        str | Sequence[str],
        Option(
            "Key fields of the exports: fields of the table that are never null. With --on "
            "transaction also NAME:TYPE, such as id:LongType.",
            "A[,B]",
            "--key",
        ),
    ] = ()
    values: Annotated[
        str | Sequence[str],
        Option("Value fields of the exports, as --key. May be null.", "C[,D]", "--value"),
    ] = ()
    exporter: Annotated[
        str | type[object],
        Option(
            "Receiver: table:OTHER (created if it is missing), "
            "postgres://USER@HOST/DATABASE?table=T, "
            "redis://HOST:6379/0?prefix=P, webhook:URL, kafka://BROKER/TOPIC, sqs:QUEUE, "
            "opensearch:https://HOST:9200/INDEX, python:NAME of a wheel, or null:.",
            "EXPORTER",
            is_required=True,
        ),
    ] = "null:"
    password: Annotated[
        str | None, secret("Place from which workers read the receiver's password")
    ] = None
    options: Annotated[
        Mapping[str, str] | None,
        Option("Option of the exporter. Repeatable.", "NAME=VALUE", "--option"),
    ] = None
    buckets: Annotated[
        int | None,
        Option(f"Buckets, each exported by one worker at a time. Default: {BUCKETS_DEFAULT}.", "N"),
    ] = None
    buffer_bytes: Annotated[
        int | None,
        Option(f"Largest size of a batch of exports. Default: {BUFFER_BYTES_DEFAULT}.", "N"),
    ] = None
    tries: Annotated[
        int | None,
        Option(
            "Calls after which exports that the receiver refuses become dead letters. "
            f"Default: {TRIES_DEFAULT}.",
            "N",
        ),
    ] = None
    timeout_seconds: Annotated[
        int | None, Option(f"Longest duration of a call. Default: {TIMEOUT_SECONDS_DEFAULT}.", "N")
    ] = None
    existing_rows: Annotated[bool, Option("Export the rows that the table has now, too.")] = False
    replace: Annotated[bool, Option("Give an existing queue another exporter and options.")] = False

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers that are given, by name."""
        numbers = {each: getattr(self, each) for each in _NUMBERS}
        return {each: number for each, number in numbers.items() if number is not None}

    @property
    def exporter_settings(self) -> ExporterSettings:
        """The exporter with its options. A class has the name `python:module:class`."""
        text: Any = self.exporter
        if isinstance(text, type):
            text = f"python:{name_object(text)}"
        elif hasattr(text, "export"):
            raise InvalidRequestError(
                f"export queue {self.name!r}: exporter is {type(text).__name__} {text!r:.100} "
                "(expected its class, of which each worker makes an object)"
            )
        return ExporterSettings(text, self.password, self.options or {})


def split_names(text: str) -> list[str]:
    """Splits a list of fields at commas, except for those of types such as DecimalType(9,2)."""
    names, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            names.append("")
        else:
            names[-1] += character
    return [each.strip() for each in names]


def _parse_source(text: str) -> ExportSource:
    """Returns the source of that name. InvalidRequestError if there is none."""
    try:
        return ExportSource(text)
    except ValueError:
        names = [each.value for each in ExportSource]
        raise InvalidRequestError(
            f"unknown source of exports {text!r}{did_you_mean(text, names)} (expected one of: "
            f"{', '.join(names)})"
        ) from None


def define_queue(new: NewQueue, schema: Schema) -> ExportQueue:
    """Returns the definition of a new queue on a table with the schema."""
    if new.on is None:
        names = ", ".join(each.value for each in ExportSource)
        raise InvalidRequestError(
            f"export queue {new.name!r} has no source of exports (expected one of: {names})"
        )
    source = _parse_source(new.on)
    keys = tuple(_find_field(new.name, schema, source, each) for each in _list_names(new.keys))
    for each in keys:
        if each.nullable:
            raise InvalidRequestError(
                f"export queue {new.name!r}: key field {each.name!r} is nullable (expected a field "
                "that is never null)"
            )
    values = tuple(_find_field(new.name, schema, source, each) for each in _list_names(new.values))
    return ExportQueue(
        new.name,
        source,
        keys,
        values,
        new.exporter_settings,
        existing_rows=new.existing_rows,
        **new.numbers,
    )


def _list_names(names: str | Sequence[str]) -> Sequence[str]:
    """Returns the names of one or several fields."""
    return [names] if isinstance(names, str) else names


def _find_field(queue: str, schema: Schema, source: ExportSource, text: str) -> Field:
    name, colon, kind = text.partition(":")
    fields = {field.name: field for field in schema.fields}
    if not colon:
        if name not in fields:
            hint = "" if source is not ExportSource.TRANSACTION else ", or NAME:TYPE"
            raise InvalidRequestError(
                f"export queue {queue!r}: the table has no field {name!r}"
                f"{did_you_mean(name, fields)} (expected one of: {', '.join(fields)}{hint})"
            )
        return replace(fields[name], default=None)
    if source is not ExportSource.TRANSACTION:
        raise InvalidRequestError(
            f"export queue {queue!r}: field {text!r} has a type (expected the name of a field of "
            f"the table, because the queue is on {source.value})"
        )
    try:
        return Field(name, parse_type(kind))
    except InvalidRequestError as error:
        raise InvalidRequestError(f"export queue {queue!r}: field {name!r}: {error}") from error


def check_source(queue: ExportQueue, table_name: str, is_snapshot_table: bool) -> None:
    """Raises InvalidRequestError if the table does not have what the queue exports."""
    source = queue.source
    if source is ExportSource.TRANSACTION:
        if queue.existing_rows:
            raise InvalidRequestError(
                f"export queue {queue.name!r} is on transactions, so it cannot export existing "
                "rows (expected a queue on ingest, snapshot or compaction)"
            )
        return
    if (source is ExportSource.SNAPSHOT) != is_snapshot_table:
        kind, expected = ("a snapshot table", "snapshot or transaction")
        if not is_snapshot_table:
            kind, expected = ("no snapshot table", "ingest, compaction or transaction")
        raise InvalidRequestError(
            f"export queue {queue.name!r} on {source.value}: table {table_name!r} is {kind} "
            f"(expected {expected})"
        )


def replace_queue(present: ExportQueue, new: NewQueue) -> ExportQueue:
    """Returns the present definition with another exporter and numbers.

    Fields are compared by name, because those of the table may have been renamed.
    """
    numbers = new.numbers
    for what, given, expected in (
        ("--on", new.on, present.source.value),
        ("--key", _join(_list_names(new.keys)), _join(each.name for each in present.keys)),
        ("--value", _join(_list_names(new.values)), _join(each.name for each in present.values)),
        ("--buckets", numbers.pop("buckets", None), present.buckets),
        ("--existing-rows", new.existing_rows or None, present.existing_rows),
    ):
        if given is not None and given != expected:
            raise InvalidRequestError(
                f"export queue {present.name!r} exists with {what} {expected} (expected this, not "
                f"{given}: delete the queue to change it)"
            )
    return replace(present, exporter=new.exporter_settings, **numbers)


def _join(names: Iterable[str]) -> str | None:
    return ",".join(each.partition(":")[0] for each in names) or None


def check_same(present: ExportQueue, new: ExportQueue) -> None:
    """Raises InvalidRequestError if an interrupted creation was one of another queue."""
    if present != new:
        raise InvalidRequestError(
            f"export queue {new.name!r} exists with {_describe(present)} (expected these, not "
            f"{_describe(new)}: delete the queue to change them)"
        )


def _describe(queue: ExportQueue) -> str:
    keys, values = (_join(each.name for each in fields) for fields in (queue.keys, queue.values))
    return (
        f"--on {queue.source.value} --key {keys} --value {values} --buckets {queue.buckets} "
        f"--exporter {queue.exporter.text}"
    )
