"""What a statement may say, which tables it names, and the engine's complaints as ours."""

import contextlib
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from datafusion import DataFrame, SQLOptions

from sleeper.errors import DataError, InvalidRequestError, SleeperError, failure_of

ALLOWED = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
"""Nothing but reading: no DDL, DML, COPY, SET or PREPARE, also within an EXPLAIN."""

_PREFIX = re.compile(
    r"^(DataFusion error: |Error during planning: |Schema error: |SQL error: |"
    r"This feature is not implemented: |Execution error: |"
    r"Optimizer rule '[^']*' failed\s*caused by\s*)+"
)
_PARSER_ERROR = re.compile(r'^ParserError\("(.*)"\)$')
_NO_TABLE = "table '"
_NO_FUNCTION = "table function '"
_NOT_FOUND = "' not found"
_FILE_PATH = r"[^\s\[\],{}\"]*/([^\s\[\],{}\"/]+\.(?:parquet|arrow))"
_NOT_ALLOWED = re.compile(r"(?:DDL|DML|Statement) not supported: (\w+)")
# A footer that names other columns leaves the last one.
_OF_FILES = ("Parquet", "Object Store error", "IO error", "missing from the physical schema")


def tables_in(statement: str, names: Iterable[str]) -> list[str]:
    """The names that occur in the statement; those that it does not name may be among them.

    A table's name cannot have a quote in it, so in SQL it is always written out, if
    perhaps in other case, with no letter or digit at either end.
    """
    text = statement.casefold()
    return [n for n in names if re.search(rf"(?<!\w){re.escape(n.casefold())}(?!\w)", text)]


def check_explains_nothing(frame: DataFrame) -> None:
    """InvalidRequestError if the statement is an EXPLAIN, for whoever may not see all rows.

    A plan names filters on fields that are hidden, and counts rows that are.
    """
    if is_explain(frame):
        raise InvalidRequestError("EXPLAIN is for callers who may see all of the tables it names")


def is_explain(frame: DataFrame) -> bool:
    """Whether the statement's rows are a plan."""
    return frame.logical_plan().display().startswith(("Explain", "Analyze"))


def without_folders(plans: pa.RecordBatch, folders: Iterable[str]) -> pa.RecordBatch:
    """The rows of an EXPLAIN with the names of files alone: folders and buckets are internal."""
    columns = []
    for column in plans.columns:
        if pa.types.is_string(column.type):
            # Paths with blanks or commas have no clear start.
            for folder in folders:
                plain = folder.rpartition("://")[2].strip("/")
                for text in {plain, quote(plain)} - {""}:
                    column = pc.replace_substring(column, text, "")
            column = pc.replace_substring_regex(column, _FILE_PATH, r"\1")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=plans.schema)


@contextlib.contextmanager
def planning_errors(names: Iterable[str]) -> Iterator[None]:
    """What the engine says of a statement that it cannot plan, as InvalidRequestError."""
    try:
        yield
    except SleeperError:
        raise
    except Exception as error:
        raise failure_of(error, _explained(str(error), names), InvalidRequestError) from error


@contextlib.contextmanager
def errors_of_statement() -> Iterator[None]:
    """What `engine_errors` took for bad data is the statement's fault if it is not of files."""
    try:
        yield
    except DataError as error:
        text = str(error.__cause__ or error)
        cause = error.__cause__
        is_panic = not isinstance(cause, Exception) or type(cause).__name__ == "RustPanic"
        if is_panic or any(sign in text for sign in _OF_FILES):
            raise
        raise InvalidRequestError(f"the statement failed: {_stripped(text)}") from error


def _explained(text: str, names: Iterable[str]) -> str:
    if found := _NOT_ALLOWED.search(text):
        return f"only SELECT and EXPLAIN are allowed, not {found.group(1)}"
    if "information_schema" in text:
        return f"there is no information_schema; {_known(names)}"
    if name := _not_found(text, _NO_FUNCTION):
        return f"no table function {name!r}: only tables can be read; {_known(names)}"
    if name := _not_found(text, _NO_TABLE):
        return f"no table {name.removeprefix('datafusion.public.')!r}; {_known(names)}"
    return f"wrong SQL: {_stripped(text)}"


def _not_found(text: str, before: str) -> str | None:
    """The name between `before` and the text's last "not found".

    The name is the caller's, and may hold either: a pattern would try each of them with the rest.
    """
    _, found, rest = text.partition(before)
    name, end, _ = rest.rpartition(_NOT_FOUND)
    return name if found and end else None


def _known(names: Iterable[str]) -> str:
    listed = ", ".join(sorted(names)[:50])
    return f"tables are: {listed}" if listed else "there are no tables"


def _stripped(text: str) -> str:
    plain = " ".join(_PREFIX.sub("", text.strip()).split())
    return _PARSER_ERROR.sub(r"\1", plain)
