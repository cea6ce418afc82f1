"""The definition of a store, and the state of a version, which is saved with the data."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated
from urllib.parse import parse_qsl, quote

from sleeper.clock import parse_duration
from sleeper.errors import DataError, InvalidRequestError
from sleeper.json_codec import JsonCodec, Member
from sleeper.runs.secrets import SECRET_FORMS, parse_secret
from sleeper.schema.model import FieldType, StoredType

DAY_SECONDS = 86_400
CACHE_BYTES_MIN = 64 * 1024
FORMAT = 2
_FORMAT_WITHOUT_EXPIRY = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SECRET_NAME = re.compile(r"password|secret|token|credential", re.IGNORECASE)
_PARTITION = re.compile(r"(\d{1,6})/(\d{1,6})")


class EngineType(StrEnum):
    """Where a store keeps its data: on local disk, or in the memory of one process."""

    ROCKSDB = "rocksdb"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Partition:
    """The part of a partitioned store: number `index` of `count`, from 0.

    Of rows, it has those whose Spark-compatible xxhash64 of the row key, modulo `count`, is
    `index`; so it has of the records of Kinesis and DynamoDB. Of a topic of Kafka, it has the
    input partitions at each `count`-th index from `index`.
    """

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise InvalidRequestError(
                f"partition {self.index}/{self.count} (expected INDEX/COUNT with INDEX from 0 to "
                "COUNT - 1)"
            )

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


@dataclass(frozen=True, slots=True)
class StoreDefinition:
    """A store. `input` is the text that names its input, such as `table:accounts`.

    With `bootstrap`, the store is complete before it can be read; otherwise lookups begin at once.
    `reset_offset` ignores the saved position if the store has to be created. A store that was not
    updated for `max_age_seconds` is created again. `extractor` names the code that makes keys and
    values of the input's data, None for the data's own. `partition` is None for a store with all
    keys. A value is returned for `ttl_ms` milliseconds after it was written, None for ever. With
    `cache_bytes`, the store has no copy: it reads keys that are asked for, and keeps so many bytes
    in memory.
    """

    name: str
    input: str
    type: EngineType = EngineType.ROCKSDB
    bootstrap: bool = True
    reset_offset: bool = False
    max_age_seconds: float = DAY_SECONDS
    extractor: str | None = None
    partition: Partition | None = None
    ttl_ms: int | None = None
    cache_bytes: int | None = None

    def __post_init__(self) -> None:
        check_store_name(self.name)
        _check_input(self.name, self.input)
        if self.max_age_seconds <= 0:
            raise InvalidRequestError(
                f"store {self.name!r}: maximum age {self.max_age_seconds} s (expected more than 0)"
            )

        if self.cache_bytes is not None:
            self._check_cache(self.cache_bytes)

    def _check_cache(self, cache_bytes: int) -> None:
        if cache_bytes < CACHE_BYTES_MIN:
            raise InvalidRequestError(
                f"store {self.name!r}: cache of {cache_bytes} bytes (expected at least "
                f"{CACHE_BYTES_MIN})"
            )
        for what, given in (
            ("an extractor", self.extractor),
            ("a partition", self.partition),
            ("a time to live", self.ttl_ms),
        ):
            if given is not None:
                raise InvalidRequestError(
                    f"store {self.name!r} has {what} and a cache (expected one of them)"
                )

    @property
    def partition_text(self) -> str | None:
        """The partition as INDEX/COUNT, None for all keys."""
        return None if self.partition is None else str(self.partition)


def check_store_name(name: str) -> None:
    """Raises InvalidRequestError for a name that is no plain file name."""
    if not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"store name {name!r} (expected 1 to 64 letters, digits, - or _, a letter or digit "
            "first)"
        )


def _check_input(store: str, source: str) -> None:
    """Raises InvalidRequestError if the text has a password, because it is saved with the data."""
    address, _, options = source.partition("?")
    host = address.partition("://")[2].partition("/")[0]
    user, at, _ = host.rpartition("@")
    if at and ":" in user:
        raise InvalidRequestError(
            f"store {store!r}: the input has a password (expected a reference to it: "
            f"{SECRET_FORMS})"
        )
    for name, value in parse_qsl(options, keep_blank_values=True):
        if _SECRET_NAME.search(name) and value:
            try:
                parse_secret(value)
            except InvalidRequestError as error:
                raise InvalidRequestError(f"store {store!r}: option {name}: {error}") from None


def add_password(source: str, reference: str | None) -> str:
    """Returns an input with the reference to its password, which its URL has as an option.

    InvalidRequestError if the input has one already, or is no URL of a server.
    """
    if reference is None:
        return source
    address, _, options = source.partition("?")
    if "://" not in address or any(name == "password" for name, _ in parse_qsl(options)):
        raise InvalidRequestError(
            f"input {address} takes no password beside its own (expected kafka://BROKER:PORT/TOPIC "
            "without the option password)"
        )
    return f"{source}{'&' if options else '?'}password={quote(reference, safe=':/')}"


def parse_engine_type(text: str) -> EngineType:
    """Returns the type. InvalidRequestError for another text."""
    try:
        return EngineType(text)
    except ValueError:
        raise InvalidRequestError(
            f"store type {text!r} (expected one of: {', '.join(EngineType)})"
        ) from None


def parse_partition(text: str) -> Partition:
    """Returns the partition of INDEX/COUNT. InvalidRequestError for another text."""
    match = _PARTITION.fullmatch(str(text))
    if match is None:
        raise InvalidRequestError(f"partition {text!r} (expected INDEX/COUNT, such as 0/4)")
    return Partition(int(match[1]), int(match[2]))


def parse_store(
    name: str,
    source: str,
    type: str = EngineType.ROCKSDB,
    bootstrap: bool = True,
    reset_offset: bool = False,
    max_age: str | None = None,
    extractor: str | None = None,
    partition: str | None = None,
    ttl: str | None = None,
    cache_bytes: int | None = None,
) -> StoreDefinition:
    """Returns the store of texts, as users write them. InvalidRequestError for an invalid one."""
    return StoreDefinition(
        name,
        source,
        EngineType.MEMORY if cache_bytes is not None else parse_engine_type(type),
        bootstrap,
        reset_offset,
        DAY_SECONDS if max_age is None else parse_age_seconds(max_age),
        extractor,
        None if partition is None else parse_partition(partition),
        None if ttl is None else parse_ttl_ms(ttl),
        cache_bytes,
    )


def parse_age_seconds(text: str) -> float:
    """Returns the seconds of a duration such as 1d. InvalidRequestError for another text."""
    return _parse_duration("maximum age", text) / 1000


def parse_ttl_ms(text: str) -> int:
    """Returns the milliseconds of a time to live. InvalidRequestError for another text."""
    return _parse_duration("time to live", text)


def _parse_duration(what: str, text: str) -> int:
    milliseconds = parse_duration(str(text))
    if not milliseconds:
        raise InvalidRequestError(f"{what} {text!r} (expected a duration such as 1d or 12h)")
    return milliseconds


def parse_stores(text: str) -> tuple[StoreDefinition, ...]:
    """Returns the stores of NAME=INPUT texts, separated by white space.

    InvalidRequestError for other text, or for a name that is there twice.
    """
    by_name: dict[str, StoreDefinition] = {}
    for each in text.split():
        name, equals, source = each.partition("=")
        if not equals or not source:
            raise InvalidRequestError(f"store {each!r} (expected NAME=INPUT)")
        if name in by_name:
            raise InvalidRequestError(
                f"store {name!r} has two inputs: {by_name[name].input} and {source}"
            )
        by_name[name] = StoreDefinition(name, source)
    return tuple(by_name.values())


@dataclass(frozen=True, slots=True)
class StoredField:
    """A field of keys or values, with its type in the table's schema."""

    name: str
    type: StoredType


@dataclass(frozen=True, slots=True)
class Layout:
    """The form of keys and values.

    A key has the `keys` in order. A value has the fields `values`; if that is None, each value is a
    document of its own: a mapping, text, number, or bytes.
    """

    keys: tuple[StoredField, ...]
    values: tuple[StoredField, ...] | None

    def key_types(self) -> list[FieldType]:
        return [each.type for each in self.keys]


@dataclass(frozen=True, slots=True)
class StoreState:
    """The state of one version of a store.

    `input`, `partition`, `extractor` and `ttl_ms` are those of the definition. `positions` has
    the offset of the next unread data for each partition of the input, as text that only the input
    understands. `dataset` names the dataset of a bounded input, and `shape` what makes changes of a
    table comparable to its rows before. `updated_ms` is the time at which the input was last seen
    to have nothing newer. `is_bootstrapped` means that a complete copy was made, and
    `is_incomplete` that data before the first position is missing.
    """

    input: str
    partition: str | None
    extractor: str | None
    layout: Layout | None = None
    positions: Mapping[str, str] = field(default_factory=dict)
    dataset: str | None = None
    shape: str | None = None
    updated_ms: int = 0
    is_bootstrapped: bool = False
    is_incomplete: bool = False
    format: Annotated[int, Member(optional=True)] = _FORMAT_WITHOUT_EXPIRY
    ttl_ms: Annotated[int | None, Member(optional=True)] = None


_CODEC = JsonCodec(StoreState)


def encode_state(state: StoreState) -> bytes:
    """Returns the state as JSON."""
    return _CODEC.format(state).encode()


def decode_state(content: bytes, where: str) -> StoreState:
    """Returns the state. DataError if it is damaged, or of another version of Sleeper."""
    state = _CODEC.parse(content.decode(errors="replace"), where, DataError)
    if state.format > FORMAT:
        raise DataError(
            f"{where}: format {state.format} is of a newer version of Sleeper (expected at "
            f"most {FORMAT})"
        )
    return state


def new_state(definition: StoreDefinition) -> StoreState:
    """Returns the state of a version of the store without data."""
    state = StoreState(definition.input, definition.partition_text, definition.extractor)
    if definition.ttl_ms is None:
        return state
    # Earlier versions of Sleeper cannot read such values.
    return replace(state, ttl_ms=definition.ttl_ms, format=FORMAT)


def loaded_state(
    definition: StoreDefinition,
    now_ms: int,
    layout: Layout | None,
    positions: Mapping[str, str],
    dataset: str | None = None,
    shape: str | None = None,
) -> StoreState:
    """Returns the state of a version with all data up to the positions."""
    return replace(
        new_state(definition),
        layout=layout,
        positions=dict(positions),
        dataset=dataset,
        shape=shape,
        updated_ms=now_ms,
        is_bootstrapped=True,
    )


def move_state(state: StoreState, now_ms: int, positions: Mapping[str, str]) -> StoreState:
    """Returns the state of a version that has all data up to the positions."""
    return replace(state, updated_ms=now_ms, positions=dict(positions))
