"""The configuration of stores by the names of Apache Samza, from a mapping or a properties file."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from sleeper.adjunct.definition import (
    StoreDefinition,
    check_store_name,
    parse_age_seconds,
    parse_engine_type,
    parse_partition,
    parse_ttl_ms,
)
from sleeper.adjunct.inputs import KINDS
from sleeper.errors import InvalidRequestError, did_you_mean
from sleeper.properties.java_text import read_properties_text

MANAGER_FACTORY = "stores.adstore.manager.factory"
BROADCAST_INPUTS = "task.broadcast.inputs"

INPUT = "input"
EXTRACTOR = "key.value.extractor.factory"
_BOOTSTRAP = "bootstrap"
_RESET_OFFSET = "reset.offset"
_TYPE = "type"
_MAX_AGE = "validity.max.age"
_PARTITION = "partition"
_TTL = "ttl"
_BROADCAST = "broadcast"
_BOUNDED = "bounded"
_MEMBERS = (
    INPUT,
    EXTRACTOR,
    _BOOTSTRAP,
    _RESET_OFFSET,
    _TYPE,
    _MAX_AGE,
    _PARTITION,
    _TTL,
    _BROADCAST,
    _BOUNDED,
)

_ANOTHER_INPUT = re.compile(rf",\s*(?=(?:{'|'.join(KINDS)}):)")
_STORE_KEY = re.compile(r"stores\.([^.]+)\.([^.]+)\.(.+)")
_PREFIX = "adstore"
_BOOLEANS = {"true": True, "false": False}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """A store of the configuration.

    `is_broadcast` means that all tasks of a container share it, and `is_bounded` that its input
    delivers whole datasets with markers.
    """

    definition: StoreDefinition
    is_broadcast: bool = False
    is_bounded: bool = False


@dataclass(frozen=True, slots=True)
class StoresConfig:
    """All stores, the name of the manager's factory, and the text that factories get."""

    stores: tuple[StoreSettings, ...]
    manager_factory: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)


def read_config(path: Path) -> StoresConfig:
    """Returns the configuration of a properties file.

    InvalidRequestError for a file that cannot be read, or as `parse_config`.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{path} cannot be read: {error}") from error
    _check_repeated(text, path)
    return parse_config(read_properties_text(text))


def parse_config(values: Mapping[str, str]) -> StoresConfig:
    """Returns the configuration. Names that do not belong to stores are ignored.

    InvalidRequestError for a store without input or with several, an unknown name below
    `stores.<store>.adstore.`, and a value that is not valid.
    """
    by_store: dict[str, dict[str, str]] = {}
    for name, value in values.items():
        member = _split_name(name)
        if member is not None:
            by_store.setdefault(member[0], {})[member[1]] = value.strip()
    stores = tuple(_parse_store(store, by_store[store], values) for store in sorted(by_store))
    return StoresConfig(stores, values.get(MANAGER_FACTORY), dict(values))


def check_kinds(config: StoresConfig) -> None:
    """Raises InvalidRequestError for an input that a store cannot read by itself."""
    for each in config.stores:
        source = each.definition.input
        if source.partition(":")[0] not in KINDS:
            raise InvalidRequestError(
                f"{_name(each.definition.name, INPUT)}: unknown input {source!r} (expected one of: "
                f"{', '.join(f'{kind}:' for kind in KINDS)})"
            )


def stream_name(source: str) -> str:
    """Returns SYSTEM.STREAM of an input, such as kafka.accounts; itself if it is no such text."""
    kind, _, rest = source.partition(":")
    if kind not in KINDS:
        return source
    path = rest.partition("?")[0]
    return f"{kind}.{path.rpartition('/')[2] if path.startswith('//') else path}"


def _split_name(name: str) -> tuple[str, str] | None:
    """Returns the store and the member of a name, None if it is not of a store."""
    if name == MANAGER_FACTORY:
        return None
    if name.startswith(f"stores.{_PREFIX}."):
        raise InvalidRequestError(f"unknown name {name!r} (expected {MANAGER_FACTORY})")
    parts = _STORE_KEY.fullmatch(name)
    if parts is None:
        return None
    store, prefix, member = parts.groups()
    if prefix != _PREFIX:
        hint = did_you_mean(prefix, [_PREFIX])
        if hint:
            raise InvalidRequestError(f"unknown name {name!r}{hint}")
        return None
    if member not in _MEMBERS:
        hint = did_you_mean(member, _MEMBERS)
        raise InvalidRequestError(f"unknown name {name!r} (expected {', '.join(_MEMBERS)}){hint}")
    return store, member


def _parse_store(
    store: str, members: Mapping[str, str], values: Mapping[str, str]
) -> StoreSettings:
    check_store_name(store)
    source = members.get(INPUT)
    if not source:
        raise InvalidRequestError(f"store {store!r} has no input (expected {_name(store, INPUT)})")
    if _ANOTHER_INPUT.search(source):
        raise InvalidRequestError(
            f"{_name(store, INPUT)}: {source!r} names several inputs (expected one)"
        )

    def read(member: str, parse: Callable[[str], T], default: T) -> T:
        text = members.get(member)
        return default if text is None else _parse(_name(store, member), text, parse)

    def read_of_stream(member: str, default: bool) -> bool:
        if member in members:
            return read(member, _parse_boolean, default)
        system, _, stream = stream_name(source).partition(".")
        name = f"systems.{system}.streams.{stream}.samza.{member}"
        text = values.get(name)
        return default if text is None else _parse(name, text.strip(), _parse_boolean)

    usual = StoreDefinition(store, source)
    definition = StoreDefinition(
        store,
        source,
        read(_TYPE, parse_engine_type, usual.type),
        read_of_stream(_BOOTSTRAP, usual.bootstrap),
        read_of_stream(_RESET_OFFSET, usual.reset_offset),
        read(_MAX_AGE, _parse_age, usual.max_age_seconds),
        members.get(EXTRACTOR),
        read(_PARTITION, parse_partition, None),
        read(_TTL, _parse_ttl, None),
    )
    is_broadcast = read(_BROADCAST, _parse_boolean, stream_name(source) in _broadcast(values))
    return StoreSettings(definition, is_broadcast, read(_BOUNDED, _parse_boolean, False))


def _broadcast(values: Mapping[str, str]) -> set[str]:
    """Returns the streams of task.broadcast.inputs: `kafka.a#0, kafka.b#[0-3]`."""
    texts = values.get(BROADCAST_INPUTS, "").split(",")
    return {each.strip().partition("#")[0] for each in texts if each.strip()}


def _parse(name: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{name}: {error}") from None


def _parse_boolean(text: str) -> bool:
    if text not in _BOOLEANS:
        raise InvalidRequestError(f"{text!r} (expected true or false)")
    return _BOOLEANS[text]


def _parse_ttl(text: str) -> int:
    """Returns milliseconds: of a duration, or the number itself as in Samza."""
    return int(text) if text.isdecimal() and int(text) else parse_ttl_ms(text)


def _parse_age(text: str) -> float:
    """Returns seconds: of a duration, or of a number of milliseconds as in Samza."""
    return int(text) / 1000 if text.isdecimal() and int(text) else parse_age_seconds(text)


def _check_repeated(text: str, path: Path) -> None:
    """Raises InvalidRequestError for a store with two inputs: the last line would count."""
    names = re.findall(rf"^[ \t]*(stores\.[^\s.=:]+\.{_PREFIX}\.{INPUT})[ \t]*[=: \t]", text, re.M)
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequestError(f"{path}: {name} is there twice (expected one input)")


def _name(store: str, member: str) -> str:
    return f"stores.{store}.{_PREFIX}.{member}"
