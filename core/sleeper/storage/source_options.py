"""Options that tell how users' files are read, where names and contents do not show it.

The options are a part of ingest jobs (docs/formats.md, "Ingest messages"), so that workers read a
file as the command does that sent the job.
"""

import codecs
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, TypeVar

from sleeper.errors import InvalidRequestError, did_you_mean
from sleeper.json_codec import Member

STANDARD_INPUT = "-"
"""The path that stands for the standard input of a command."""

C = TypeVar("C", bound=Enum)

_DELIMITER_NAMES = {"tab": "\t", "\\t": "\t"}
_QUOTES_AND_LINE_ENDS = '"\r\n'


class FileFormat(Enum):
    """Formats of users' files."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"


class NestedColumns(Enum):
    """The conversion of nested source columns for text fields. They are refused without one."""

    JSON = "json"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How files are read. An option that is None is detected in each file.

    - `format`: of all files, whatever their names end with.
    - `delimiter`: of CSV, one ASCII character.
    - `encoding`: of CSV and JSON lines, one of Python's names.
    - `header`: whether the first line of CSV names the columns.
    - `columns`: the names of the columns of CSV, in place of those of a header.
    - `nested`: the conversion of nested columns for text fields.

    Raises InvalidRequestError for an invalid value.
    """

    format: Annotated[FileFormat | None, Member(optional=True)] = None
    delimiter: Annotated[str | None, Member(optional=True)] = None
    encoding: Annotated[str | None, Member(optional=True)] = None
    header: Annotated[bool | None, Member(optional=True)] = None
    columns: Annotated[tuple[str, ...], Member(optional=True)] = ()
    nested: Annotated[NestedColumns | None, Member(optional=True)] = None

    def __post_init__(self) -> None:
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", _check_delimiter(self.delimiter))
        if self.encoding is not None:
            object.__setattr__(self, "encoding", _find_encoding(self.encoding))
        duplicates = {name for name in self.columns if self.columns.count(name) > 1}
        if duplicates or "" in self.columns:
            raise InvalidRequestError(
                f"invalid columns: {', '.join(map(repr, self.columns))} (expected different names)"
            )


DEFAULT_OPTIONS = SourceOptions()
"""Options that detect everything in the names and contents of files."""


def make_source_options(
    format: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    header: bool | None = None,
    columns: tuple[str, ...] = (),
    nested: str | None = None,
) -> SourceOptions:
    """Returns the options of these texts. InvalidRequestError lists the expected values."""
    return SourceOptions(
        None if format is None else _choose(FileFormat, format, "format"),
        delimiter,
        encoding,
        header,
        columns,
        None if nested is None else _choose(NestedColumns, nested, "choice of nested columns"),
    )


def _choose(choices: type[C], text: str, what: str) -> C:
    try:
        return choices(text)
    except ValueError:
        expected = ", ".join(each.value for each in choices)
        raise InvalidRequestError(f"unknown {what}: {text!r} (expected {expected})") from None


def _check_delimiter(text: str) -> str:
    delimiter = _DELIMITER_NAMES.get(text.lower(), text)
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in _QUOTES_AND_LINE_ENDS:
        raise InvalidRequestError(
            f"invalid delimiter: {text!r} (expected one ASCII character, or tab)"
        )
    return delimiter


def _find_encoding(name: str) -> str:
    try:
        result = codecs.lookup(name)
        # Other codecs convert bytes to bytes.
        "".encode(result.name)
    except (LookupError, ValueError):
        near = did_you_mean(name, ("utf-8", "utf-16", "cp1252", "latin-1"))
        raise InvalidRequestError(
            f"unknown encoding: {name!r} (expected a name such as utf-8, cp1252 or utf-16){near}"
        ) from None
    return "utf-8" if result.name == "utf-8-sig" else result.name
