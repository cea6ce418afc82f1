"""The definition of an export queue and its JSON, which the state of the table stores."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import cached_property
from typing import Annotated
from urllib.parse import urlsplit

from sleeper.errors import DataError, InvalidRequestError
from sleeper.json_codec import JsonCodec, Member, camel_case
from sleeper.runs.secrets import parse_secret
from sleeper.schema.model import Field, Schema, describe_key_types, is_key_type, type_name

BUCKETS_DEFAULT = 119
BUCKETS_MAX = 100_000
BUFFER_BYTES_DEFAULT = 1_048_576
_BUFFER_BYTES_MAX = 64 * 1_048_576
TRIES_DEFAULT = 8
_TRIES_MAX = 1_000
TIMEOUT_SECONDS_DEFAULT = 60
_TIMEOUT_SECONDS_MAX = 600
NAME_LENGTH_MAX = 80
SEQUENCE = "sequence"
"""The column of an export's transaction number."""
TOMBSTONE = "__gone"
"""The column that is true for a key that the table does not have any more. Its values are null."""
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_LENGTH_MAX - 1}}}")
_OPTIONAL = Member(optional=True)
_KINDS_OF_URLS = ("opensearch", "webhook")


class ExportSource(Enum):
    """What a queue exports.

    - TRANSACTION: what transactions attach.
    - INGEST: the changes of rows: ingests, imports, deletes, restores.
    - SNAPSHOT: the rows of each version of a snapshot table.
    - COMPACTION: the rows of each file that a compaction wrote.
    """

    TRANSACTION = "transaction"
    INGEST = "ingest"
    SNAPSHOT = "snapshot"
    COMPACTION = "compaction"


@dataclass(frozen=True, slots=True)
class ExporterSettings:
    """The exporter of a queue: its text, such as `table:counts`, and its options.

    `password` is a reference to a secret. `options` are those of the kind of exporter.
    """

    text: str
    password: Annotated[str | None, _OPTIONAL] = None
    options: Annotated[Mapping[str, str], _OPTIONAL] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.password is not None:
            parse_secret(self.password)

    @property
    def shown(self) -> str:
        """The text for people, which shows no secret."""
        return describe_exporter(self.text, self.options)

    @property
    def kind(self) -> str:
        """The text before the first colon, such as `table`."""
        return self.text.partition(":")[0]

    @property
    def target(self) -> str:
        """The text after the first colon."""
        return self.text.partition(":")[2]


@dataclass(frozen=True)
class ExportQueue:
    """A queue. Keys are of types of key fields and never null; values may be null.

    `buckets`, keys, values and the source never change. `tries` is the number of calls of the
    exporter after which exports that it refuses become dead letters. `existing_rows` exports the
    rows that the table has when the queue is created.
    """

    name: str
    source: Annotated[ExportSource, Member("on")]
    keys: tuple[Field, ...]
    values: tuple[Field, ...]
    exporter: ExporterSettings
    buckets: int = BUCKETS_DEFAULT
    buffer_bytes: int = BUFFER_BYTES_DEFAULT
    tries: int = TRIES_DEFAULT
    timeout_seconds: int = TIMEOUT_SECONDS_DEFAULT
    existing_rows: Annotated[bool, _OPTIONAL] = False

    def __post_init__(self) -> None:
        check_queue_name(self.name)
        what = f"export queue {self.name!r}"
        _check_number(f"{what}: buckets", self.buckets, BUCKETS_MAX)
        _check_number(f"{what}: buffer size", self.buffer_bytes, _BUFFER_BYTES_MAX)
        _check_number(f"{what}: tries", self.tries, _TRIES_MAX)
        _check_number(f"{what}: timeout", self.timeout_seconds, _TIMEOUT_SECONDS_MAX)
        if not self.keys:
            raise InvalidRequestError(f"{what} has no key field (expected at least one)")
        for each in self.keys:
            if not is_key_type(each.type):
                raise InvalidRequestError(
                    f"{what}: key field {each.name!r} has type {type_name(each.type)} "
                    f"(expected {describe_key_types(each.type)})"
                )
        for each in (*self.keys, *self.values):
            if each.name in (SEQUENCE, TOMBSTONE):
                raise InvalidRequestError(
                    f"{what}: the field name {each.name!r} is reserved (expected another name)"
                )
        try:
            _ = self.schema  # checks the names of fields
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{what}: {error}") from error

    @cached_property
    def schema(self) -> Schema:
        """The keys as row keys, and the values, all nullable."""
        keys = tuple(Field(each.name, each.type) for each in self.keys)
        values = tuple(Field(each.name, each.type, nullable=True) for each in self.values)
        return Schema(keys, values=values)


def describe_exporter(text: str, options: Mapping[str, str]) -> str:
    """Returns the text of an exporter for people, and whether its connection may be insecure.

    Paths and queries of webhooks often are credentials, so only an index of OpenSearch is shown.
    """
    kind, _, target = text.partition(":")
    if kind in _KINDS_OF_URLS:
        text = f"{kind}:{_describe_url(target, kind == 'opensearch')}"
    return f"{text} (insecure)" if options.get("insecure") == "true" else text


def _describe_url(url: str, shows_path: bool) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "..."
    host = parts.netloc.rpartition("@")[2]
    is_short = parts.path in ("", "/") or shows_path
    path = parts.path if is_short and not parts.query else "/..."
    return f"{parts.scheme}://{host}{path}"


EXPORT_QUEUES: JsonCodec[ExportQueue] = JsonCodec(
    ExportQueue,
    camel_case,
    [("on" if each.name == "source" else camel_case(each.name)) for each in fields(ExportQueue)],
)
"""The strict codec of definitions."""


def parse_definition(text: str) -> ExportQueue:
    """Returns the definition of stored JSON. DataError if it is none."""
    return EXPORT_QUEUES.parse(text, "definition of an export queue", DataError)


def check_queue_name(name: str) -> str:
    """Returns the name. InvalidRequestError if it is invalid: keys of storage contain names."""
    if _NAME.fullmatch(name) is None:
        raise InvalidRequestError(
            f"export queue name {name[:100]!r} is invalid (expected 1 to {NAME_LENGTH_MAX} "
            "letters, digits, '.', '-' or '_', of which the first is a letter or digit)"
        )
    return name


def _check_number(what: str, value: int, largest: int) -> None:
    if type(value) is not int:
        raise InvalidRequestError(f"{what} {value!r} is not an integer (expected 1 to {largest:,})")
    if not 1 <= value <= largest:
        raise InvalidRequestError(f"{what} {value:,} is out of range (expected 1 to {largest:,})")
