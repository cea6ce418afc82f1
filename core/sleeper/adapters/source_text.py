"""Sources as users write them.

A source is the URL of a database, `table:NAME[@VERSION]`, or paths of files: `files:PATH`, a plain
path, a pattern such as `data/*.csv`, or `s3://bucket/key`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from sleeper.adapters.definition import (
    TIMEOUT_SECONDS_MAX,
    DatabaseOptions,
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
from sleeper.options import Option
from sleeper.storage.bucket import is_s3_url
from sleeper.storage.patterns import is_pattern
from sleeper.storage.sources import LOCAL_SCHEME

if TYPE_CHECKING:
    from sleeper.instance import Instance

_TABLE, _FILES = "table:", "files:"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_EXPECTED = (
    "postgresql://USER@HOST/DATABASE, mariadb://... or mysql://..., table:NAME[@VERSION], a path "
    "or s3://bucket/key"
)


@dataclass(frozen=True)
class _NamedPair:
    name: Annotated[str, Option("Name of the new adapter.", "NAME", is_argument=True)]
    source: Annotated[
        str | Sequence[str],
        Option(
            "postgresql://USER@HOST/DATABASE, mariadb://... or mysql://...; table:NAME[@VERSION]; "
            "or a file, a folder, a pattern such as 'data/*.csv' or s3://bucket/key, repeatable.",
            "SOURCE",
        ),
    ]
    sink: Annotated[str, Option("Table that receives the rows.", "TABLE")]


# The fields of the last class come first.
@dataclass(frozen=True)
class NewAdapter(DatabaseOptions, _NamedPair):
    """An adapter as users write it. Only a database has `timeout`, and the options before."""

    timeout: Annotated[
        str | None,
        Option("Database: time limit of the query, such as 30m. Default: none.", "DURATION"),
    ] = None
    columns: Annotated[
        Mapping[str, str] | None,
        Option(
            "Field of the sink and the column of the source that it is read from. Repeatable. "
            "Default: the column of the same name.",
            "FIELD=COLUMN",
            "--column",
        ),
    ] = None
    constants: Annotated[
        Mapping[str, str] | None,
        Option(
            "Field of the sink and its value in all rows, in place of a column. Repeatable.",
            "FIELD=VALUE",
            "--constant",
        ),
    ] = None
    replace: Annotated[bool, Option("Replace the source and sink of an existing adapter.")] = False
    check: Annotated[bool, Option("Do not open the source, for example because it is down.")] = True


_DATABASE_OPTIONS = tuple(each.name for each in fields(DatabaseOptions))


def parse_source(instance: "Instance", new: NewAdapter) -> Source:
    """Returns the source. InvalidRequestError names what is wrong, never with a password."""
    texts = [new.source] if isinstance(new.source, str) else new.source
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
        return _database(first, new)
    source: Source
    if first.startswith(_TABLE):
        source = _table(first)
    else:
        source = FilesSource(tuple(_path(instance, text) for text in texts))
    names = (*_DATABASE_OPTIONS, "timeout")
    if given := [name for name in names if getattr(new, name) is not None]:
        raise InvalidRequestError(
            f"{', '.join(given).replace('_', ' ')} given for a source that is not a database "
            "(expected a URL such as postgresql://USER@HOST/DATABASE)"
        )
    return source


def _database(url: str, new: NewAdapter) -> DatabaseSource:
    stored, user = split_user(url)
    if new.table or new.query:
        relation_of(new.table, new.query)
    if user is not None and new.user not in (None, user):
        raise InvalidRequestError(
            f"user {new.user!r} is not the user {user!r} of the URL (expected one user)"
        )
    options = {name: getattr(new, name) for name in _DATABASE_OPTIONS}
    options |= {"user": new.user or user, "engine": _engine(new.engine)}
    return DatabaseSource(stored, **options, timeout_seconds=_seconds(new.timeout))


def _engine(text: str | None) -> Engine | None:
    try:
        return None if text is None else Engine(text)
    except ValueError:
        expected = " or ".join(each.value for each in Engine)
        raise InvalidRequestError(f"unknown engine: {text!r} (expected {expected})") from None


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


def _path(instance: "Instance", text: str) -> str:
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
