"""Sources as users write them.

A source is the URL of a database, `table:NAME[@VERSION]`, or paths of files: `files:PATH`, a plain
path, a pattern such as `data/*.csv`, or `s3://bucket/key`.
"""

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sleeper.adapters.database_url import is_database_url, split_user
from sleeper.adapters.definition import (
    DatabaseSource,
    Engine,
    FilesSource,
    Source,
    TableSource,
)
from sleeper.clock import parse_duration
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.storage.bucket import is_s3_url
from sleeper.storage.location import LOCAL_SCHEME

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
    if options.given():
        raise InvalidRequestError(
            f"{', '.join(options.given())} given for a source that is not a database (expected a "
            "URL such as postgresql://USER@HOST/DATABASE)"
        )
    if first.startswith(_TABLE):
        return _table(first.removeprefix(_TABLE))
    return FilesSource(tuple(_path(instance, text) for text in texts))


def _database(url: str, options: DatabaseOptions) -> DatabaseSource:
    stored, user = split_user(url)
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
    return milliseconds // 1000


def _table(text: str) -> TableSource:
    name, at, version = text.rpartition("@")
    return TableSource(name, version or None) if at else TableSource(text)


def _path(instance: Instance, text: str) -> str:
    path = text.removeprefix(_FILES)
    if is_s3_url(path):
        return path
    is_jdbc = path.startswith("jdbc:")
    if is_jdbc or (_SCHEME.match(path) and not path.startswith(LOCAL_SCHEME)):
        # The rest may contain a password.
        scheme = "jdbc:" if is_jdbc else path.partition(":")[0] + "://"
        raise InvalidRequestError(f"unknown kind of source: {scheme} (expected {_EXPECTED})")
    if text.startswith(_TABLE) or is_database_url(text):
        raise InvalidRequestError(f"source {text!r} is among files (expected only files)")
    bare = path.removeprefix(LOCAL_SCHEME)
    if not bare:
        raise InvalidRequestError(f"source {text!r} has no path (expected {_EXPECTED})")
    if is_pattern(bare):
        return f"{LOCAL_SCHEME}{Path(bare).absolute()}"
    return instance.storage.sources.job_name(bare)


def is_pattern(path: str) -> bool:
    """Whether the path is a pattern, and not the name of a file."""
    return glob.has_magic(path) and not Path(path).exists()
