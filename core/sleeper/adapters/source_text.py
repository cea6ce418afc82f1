"""Sources as users write them.

A source is the URL of a database, `table:NAME[@VERSION]`, or paths of files: `files:PATH`, a plain
path, a pattern such as `data/*.csv`, or `s3://bucket/key`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sleeper.adapters.definition import (
    TIMEOUT_SECONDS_MAX,
    DatabaseSource,
    Engine,
    FilesSource,
    Source,
    TableSource,
)
from sleeper.clock import parse_duration
from sleeper.databases.columns import relation_of
from sleeper.databases.url import DatabaseKind, is_database_url, split_user
from sleeper.errors import InvalidRequestError, did_you_mean
from sleeper.instance import Instance
from sleeper.storage.bucket import is_s3_url
from sleeper.storage.patterns import is_pattern
from sleeper.storage.sources import LOCAL_SCHEME

_TABLE, _FILES = "table:", "files:"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_EXPECTED = (
    "postgresql://USER@HOST/DATABASE, mariadb://... or mysql://..., table:NAME[@VERSION], a path "
    "or s3://bucket/key"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseOptions:
    """The options of a database, as texts of users. See `DatabaseSource`."""

    table: str | None = None
    query: str | None = None
    user: str | None = None
    password: str | None = None
    engine: str | None = None
    partition_column: str | None = None
    lower: str | None = None
    upper: str | None = None
    partitions: int | None = None
    fetch_rows: int | None = None
    timeout: str | None = None

    def given(self) -> tuple[str, ...]:
        """Returns the names of the options that have a value."""
        return tuple(name for name in self.__slots__ if getattr(self, name) is not None)


def parse_source(
    instance: Instance, texts: Sequence[str], options: DatabaseOptions | None = None
) -> Source:
    """Returns the source. InvalidRequestError names what is wrong, never with a password."""
    options = options or DatabaseOptions()
    if not texts:
        raise InvalidRequestError(f"no source (expected {_EXPECTED})")
    first = texts[0]
    is_single = is_database_url(first) or first.startswith(_TABLE)
    if is_single and len(texts) > 1:
        raise InvalidRequestError(
            f"{len(texts)} sources, of which the first is a database or a table (expected one, or "
            "several files)"
        )
    if is_database_url(first):
        return _database(first, options)
    source: Source
    if first.startswith(_TABLE):
        source = _table(first)
    else:
        source = FilesSource(tuple(_path(instance, text) for text in texts))
    if given := options.given():
        raise InvalidRequestError(
            f"{', '.join(given).replace('_', ' ')} given for a source that is not a database "
            "(expected a URL such as postgresql://USER@HOST/DATABASE)"
        )
    return source


def _database(url: str, options: DatabaseOptions) -> DatabaseSource:
    stored, user = split_user(url)
    if options.table or options.query:
        relation_of(options.table, options.query)
    if user is not None and options.user not in (None, user):
        raise InvalidRequestError(
            f"user {options.user!r} is not the user {user!r} of the URL (expected one user)"
        )
    return DatabaseSource(
        stored,
        table=options.table,
        query=options.query,
        user=options.user or user,
        password=options.password,
        engine=_engine(options.engine),
        partition_column=options.partition_column,
        lower=options.lower,
        upper=options.upper,
        partitions=options.partitions,
        fetch_rows=options.fetch_rows,
        timeout_seconds=_seconds(options.timeout),
    )


def _engine(text: str | None) -> Engine | None:
    try:
        return None if text is None else Engine(text)
    except ValueError:
        known = " or ".join(each.value for each in Engine)
        raise InvalidRequestError(f"unknown engine: {text!r} (expected {known})") from None


def _seconds(text: str | None) -> int | None:
    if text is None:
        return None
    milliseconds = parse_duration(text)
    if milliseconds is None:
        raise InvalidRequestError(f"timeout {text!r} is not a duration (expected one such as 30m)")
    if not 1_000 <= milliseconds <= TIMEOUT_SECONDS_MAX * 1_000:
        raise InvalidRequestError(f"timeout {text!r} is out of range (expected 1s to 7d)")
    return milliseconds // 1000


def _table(text: str) -> TableSource:
    rest = text.removeprefix(_TABLE)
    name, at, version = rest.rpartition("@")
    if at and not version:
        raise InvalidRequestError(f"source {text!r} has no version (expected table:NAME@VERSION)")
    return TableSource(name, version) if at else TableSource(rest)


def _path(instance: Instance, text: str) -> str:
    path = text.removeprefix(_FILES)
    if is_s3_url(path):
        return path
    if text.startswith(_TABLE) or is_database_url(text):
        # A URL may contain a password.
        shown = f"source {text!r}" if text.startswith(_TABLE) else "a database"
        raise InvalidRequestError(f"{shown} is among files (expected only files)")
    is_jdbc = path.startswith("jdbc:")
    if is_jdbc or (_SCHEME.match(path) and not path.startswith(LOCAL_SCHEME)):
        # The rest may contain a password.
        scheme = "jdbc" if is_jdbc else path.partition(":")[0]
        near = did_you_mean(scheme, (*(each.value for each in DatabaseKind), "s3"))
        ending = ":" if is_jdbc else "://"
        raise InvalidRequestError(
            f"unknown kind of source: {scheme}{ending} (expected {_EXPECTED}){near}"
        )
    bare = path.removeprefix(LOCAL_SCHEME)
    if not bare:
        raise InvalidRequestError(f"source {text!r} has no path (expected {_EXPECTED})")
    if is_pattern(bare):
        return f"{LOCAL_SCHEME}{Path(bare).absolute()}"
    return instance.storage.sources.job_name(bare)
