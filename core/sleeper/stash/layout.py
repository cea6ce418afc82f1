"""The names and small files of a stash: roots, table directories, `_SUCCESS`, `_TABLES`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated

from sleeper.clock import iso_time
from sleeper.errors import DataError, InvalidRequestError
from sleeper.json_codec import JsonCodec, Member
from sleeper.schema.model import Schema
from sleeper.storage.location import UNFINISHED_SUFFIX
from sleeper.tables import TableId

LATEST = "_LATEST"
SUCCESS = "_SUCCESS"
TABLES = "_TABLES"

_ROOT_NAME = re.compile(r"\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d")
_ROOT_FORMAT = "%Y-%m-%d-%H-%M-%S"
_SECOND_MS = 1000


class StashFormat(Enum):
    """The format of a stash's files."""

    JSON = "json"
    PARQUET = "parquet"

    @property
    def suffix(self) -> str:
        """The end of the names of its files."""
        return ".json.gz" if self is StashFormat.JSON else f".{self.value}"


FILE_SUFFIXES = tuple(each.suffix for each in StashFormat)


def parse_format(name: str) -> StashFormat:
    """Returns the format of that name. InvalidRequestError if there is none."""
    try:
        return StashFormat(name)
    except ValueError:
        expected = " or ".join(each.value for each in StashFormat)
        raise InvalidRequestError(f"stash format {name!r} (expected {expected})") from None


def root_name(time_ms: int) -> str:
    """Returns the name of the root of a stash that starts at the time, in whole seconds."""
    return datetime.fromtimestamp(time_ms // _SECOND_MS, UTC).strftime(_ROOT_FORMAT)


def root_time_ms(name: str) -> int:
    """Returns the time in a root's name. InvalidRequestError if it is not the name of one."""
    if is_root_name(name):
        return int(datetime.strptime(name, _ROOT_FORMAT).replace(tzinfo=UTC).timestamp()) * 1000
    raise InvalidRequestError(f"{name!r} is not the name of a stash (expected yyyy-MM-dd-HH-mm-ss)")


def is_root_name(name: str) -> bool:
    """Returns whether a folder of that name is the root of a stash."""
    if not _ROOT_NAME.fullmatch(name):
        return False
    try:
        datetime.strptime(name, _ROOT_FORMAT)
    except ValueError:
        return False
    return True


def table_directory(table: str) -> str:
    """Returns the name of a table's directory."""
    return table.replace(":", "~")


def claim_directory(table: str, owners: dict[str, str]) -> str | None:
    """Makes a table the owner of its directory, or returns why it cannot be.

    `owners` has the table of each directory.
    """
    directory = table_directory(table)
    if directory in (LATEST, SUCCESS, TABLES):
        return (
            f"table {table!r} would have the directory {directory!r}, which is the name of a file "
            "of the stash: rename the table"
        )
    owner = owners.setdefault(directory, table)
    if owner == table:
        return None
    return f"tables {owner!r} and {table!r} would share the directory {directory!r}: rename one"


def piece_name(table: str, shard: int, table_id: TableId, number: int, format: StashFormat) -> str:
    """Returns the name of a piece's file. `shard` counts leaves, `number` the parts of one."""
    return f"{table_directory(table)}-{shard:02x}-{table_id}-{number}{format.suffix}"


_SUFFIX = "|".join(map(re.escape, FILE_SUFFIXES))
_STASH_FILE = re.compile(
    rf"(?:{SUCCESS}|{TABLES}|(?P<directory>[^/]+)/(?P=directory)"
    rf"-[0-9a-f]{{2,}}-(?P<table>[0-9a-f]{{8}})-[0-9]+(?:{_SUFFIX}))"
    rf"(?:\.[0-9a-f]{{16}}{re.escape(UNFINISHED_SUFFIX)})?"
)


_EMO_FILE = re.compile(r"(?P<directory>[^/]+)/(?P=directory)-[^/]+")
_GZIP_SUFFIX = ".gz"


def parse_emo_directory(path: str) -> str | None:
    """Returns the directory of a file of EmoDB's Stash, by its path relative to a root.

    None for a file that is not named after its directory, which EmoDB did not write. DataError if
    the file is not gzipped: EmoDB may be set to compress by other codecs, which are not read.
    """
    match = _EMO_FILE.fullmatch(path)
    if match is None:
        return None
    if not path.endswith(_GZIP_SUFFIX):
        raise DataError(f"file {path!r} is not gzipped (expected a name that ends in .gz)")
    return match["directory"]


def is_readable_file(path: str) -> bool:
    """Returns whether a file has the ending of those that stashes consist of."""
    return path.endswith((*FILE_SUFFIXES, _GZIP_SUFFIX))


def is_stash_file(path: str) -> bool:
    """Returns whether a file of that path, relative to a root, is part of a stash."""
    return _STASH_FILE.fullmatch(path) is not None


def table_of_piece(path: str) -> TableId | None:
    """Returns the table of a piece, by its path relative to a root; None for any other file."""
    match = _STASH_FILE.fullmatch(path)
    if match is None or match["table"] is None or path.endswith(UNFINISHED_SUFFIX):
        return None
    return TableId(match["table"])


@dataclass(frozen=True, slots=True)
class Success:
    """The content of `_SUCCESS`."""

    started_ms: int
    completed_ms: int
    stash_id: str

    def to_bytes(self) -> bytes:
        """Returns the three lines of the file."""
        lines = (iso_time(self.started_ms), iso_time(self.completed_ms), self.stash_id)
        return "".join(f"{line}\n" for line in lines).encode()

    @classmethod
    def from_bytes(cls, content: bytes, path: str) -> "Success":
        """Parses the file. DataError names it if it is damaged."""
        try:
            started, completed, stash_id = content.decode().splitlines()[:3]
            return cls(_parse_time(started), _parse_time(completed), stash_id)
        except ValueError as error:
            raise DataError(f"{path} is damaged: {error} (expected three lines)") from error


def _parse_time(text: str) -> int:
    time = datetime.fromisoformat(text)
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class StashedTable:
    """A table of a stash, a line of `_TABLES`: its version, and the rows and files written.

    `version` is the transaction number, `time_ms` the time of its entry.
    """

    table: str
    id: TableId
    version: int
    time_ms: Annotated[int, Member("time")]
    rows: int
    files: int
    bytes: int
    table_schema: Annotated[Schema, Member("schema")]
    format: Annotated[StashFormat, Member(optional=True)] = StashFormat.JSON

    @property
    def directory(self) -> str:
        """The directory of the table's files, which exists if it has rows."""
        return table_directory(self.table)


@dataclass(frozen=True, slots=True)
class EmoTable:
    """A table of a stash that EmoDB made. It has no list of tables, so the files tell all."""

    table: str
    directory: str
    files: int
    bytes: int
    format: StashFormat = StashFormat.JSON
    version: None = None
    time_ms: None = None
    rows: None = None
    table_schema: None = None


_TABLE_CODEC = JsonCodec(StashedTable)


def format_tables(tables: Iterable[StashedTable]) -> bytes:
    """Returns the content of `_TABLES`: a line of JSON for each table."""
    return "".join(f"{_TABLE_CODEC.format(table)}\n" for table in tables).encode()


def parse_tables(content: bytes, path: str) -> tuple[StashedTable, ...]:
    """Parses `_TABLES`. DataError names it if it is damaged."""
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is damaged: {error}") from error
    return tuple(_TABLE_CODEC.parse(line, path, DataError) for line in lines)
