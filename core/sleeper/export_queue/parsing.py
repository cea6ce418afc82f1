"""Definitions of export queues from the texts of users."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sleeper.errors import InvalidRequestError, did_you_mean
from sleeper.export_queue.definition import ExporterSettings, ExportQueue, ExportSource
from sleeper.schema.model import Field, Schema
from sleeper.schema.type_text import parse_type

_NUMBERS = ("buckets", "buffer_bytes", "tries", "timeout_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """The numbers of a new queue, None for the default, or for that of the replaced queue."""

    buckets: int | None = None
    buffer_bytes: int | None = None
    tries: int | None = None
    timeout_seconds: int | None = None
    existing_rows: bool = False


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


def define_queue(
    name: str,
    schema: Schema,
    source: str | None,
    keys: Sequence[str],
    values: Sequence[str],
    exporter: ExporterSettings,
    given: QueueOptions,
) -> ExportQueue:
    """Returns a new definition. `keys` and `values` are `NAME` or `NAME:TYPE`."""
    if source is None:
        names = ", ".join(each.value for each in ExportSource)
        raise InvalidRequestError(
            f"export queue {name!r} has no source of exports (expected one of: {names})"
        )
    origin = _parse_source(source)
    key_fields = tuple(_find_field(name, schema, origin, each) for each in keys)
    for each in key_fields:
        if each.nullable:
            raise InvalidRequestError(
                f"export queue {name!r}: key field {each.name!r} is nullable (expected a field "
                "that is never null)"
            )
    value_fields = tuple(_find_field(name, schema, origin, each) for each in values)
    queue = ExportQueue(
        name, origin, key_fields, value_fields, exporter, existing_rows=given.existing_rows
    )
    numbers = {each: getattr(given, each) for each in _NUMBERS}
    return replace(
        queue, **{each: number for each, number in numbers.items() if number is not None}
    )


def _find_field(queue: str, schema: Schema, source: ExportSource, text: str) -> Field:
    name, colon, kind = text.partition(":")
    known = {field.name: field for field in schema.fields}
    if not colon:
        if name not in known:
            hint = "" if source is not ExportSource.TRANSACTION else ", or NAME:TYPE"
            raise InvalidRequestError(
                f"export queue {queue!r}: the table has no field {name!r}"
                f"{did_you_mean(name, known)} (expected one of: {', '.join(known)}{hint})"
            )
        return replace(known[name], default=None)
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


def replace_queue(
    present: ExportQueue,
    source: str | None,
    keys: Sequence[str],
    values: Sequence[str],
    exporter: ExporterSettings,
    given: QueueOptions,
) -> ExportQueue:
    """Returns the present definition with another exporter and options.

    Fields are compared by name, because those of the table may have been renamed.
    """
    for what, found, expected in (
        ("--on", source, present.source.value),
        ("--key", _join(keys), _join(each.name for each in present.keys)),
        ("--value", _join(values), _join(each.name for each in present.values)),
        ("--buckets", given.buckets, present.buckets),
        ("--existing-rows", given.existing_rows or None, present.existing_rows),
    ):
        if found is not None and found != expected:
            raise InvalidRequestError(
                f"export queue {present.name!r} exists with {what} {expected} (expected this, not "
                f"{found}: delete the queue to change it)"
            )
    changes = {each: getattr(given, each) for each in _NUMBERS if each != "buckets"}
    numbers = {each: number for each, number in changes.items() if number is not None}
    return replace(present, exporter=exporter, **numbers)


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
