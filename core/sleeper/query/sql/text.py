"""The text of statements: limits, table names, and the translation of the engine's errors."""

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from datafusion import DataFrame, SQLOptions

from sleeper.datafiles.json_syntax import NotJsonError
from sleeper.errors import DataError, InvalidRequestError, SleeperError, classify_error
from sleeper.query.sql.tokens import read_tokens

_DEPTH_MAX = 1000
# A join or a set operation takes about ten times the stack of an operator.
_PLAN_COSTS = {"SELECT": 2} | dict.fromkeys(("JOIN", "EXCEPT", "INTERSECT", "MINUS"), 10)
# fmt: off
_OPERATORS = frozenset((
    "AND", "OR", "XOR", "NOT", "IS", "ISNULL", "NOTNULL", "IN", "LIKE", "ILIKE", "SIMILAR", "RLIKE",
    "REGEXP", "MATCH", "MEMBER", "BETWEEN", "ESCAPE", "DIV", "MOD", "COLLATE", "AT", "OVERLAPS",
    "OPERATOR", "PRIOR", "BINARY",
))
# fmt: on
_CLAUSES = frozenset(["SELECT", "WHERE", "GROUP", "HAVING", "QUALIFY", "ORDER", "LIMIT", "WINDOW"])
_CASE_PARTS = frozenset(("WHEN", "THEN", "ELSE"))
_BEFORE_NAMES = frozenset(("", ",", "WITH", "RECURSIVE", "FROM", "JOIN", "AS"))


def check_statement(statement: str) -> None:
    """Raises `InvalidRequestError` for a statement that is too deep for the engine.

    It refuses TABLESAMPLE too, for which the engine would silently return all rows.
    """
    depth = _Depth()
    before = previous = ""
    for each in read_tokens(statement):
        kind, token = each.kind, each.text
        is_sample = token == "(" and previous == "SAMPLE" and before not in _BEFORE_NAMES
        if token == "TABLESAMPLE" or is_sample:
            raise InvalidRequestError("TABLESAMPLE is not supported")
        if kind == "word":
            depth.add_word(token)
        elif kind == "symbol":
            depth.add_symbol(token)
        before, previous = previous, token


def find_parameters(statement: str) -> set[str]:
    """Returns the names of the parameters, such as `id` of `$id`."""
    return {each.text[1:] for each in read_tokens(statement) if each.kind == "parameter"}


@dataclass(slots=True)
class _Level:
    """An open parenthesis or CASE. Its items are siblings, so the deepest counts.

    `operators` and `inner` are those of the current item: its number of operators, and the depth
    of its deepest parenthesis.
    """

    opened_by: str
    operators: int = 0
    inner: int = 0
    deepest: int = 0
    is_from: bool = False

    @property
    def depth(self) -> int:
        return max(self.deepest, self.operators + self.inner)

    def end_item(self) -> None:
        self.deepest = self.depth
        self.operators = self.inner = 0


@dataclass(slots=True)
class _Depth:
    """An upper bound of the depth of a statement.

    `plan` is the cost of all queries and joins. Nesting does not matter, because one may refer to
    another by name.
    """

    levels: list[_Level] = field(default_factory=lambda: [_Level("")])
    plan: int = 0

    def add_word(self, word: str) -> None:
        level = self.levels[-1]
        if word in _OPERATORS:
            self._add_operator()
        elif word == "CASE":
            self.levels.append(_Level(word))
        elif word == "END" and level.opened_by == "CASE":
            self._close()
        elif word in _CASE_PARTS:
            level.end_item()
        if cost := _PLAN_COSTS.get(word):
            self._add_plan(cost)
        if word == "FROM" or word in _CLAUSES:
            level.is_from = word == "FROM"

    def add_symbol(self, symbol: str) -> None:
        level = self.levels[-1]
        if symbol in "([{":
            if symbol == "[":  # `a[1][2]` is a chain.
                self._add_operator()
            self.levels.append(_Level(symbol))
        elif symbol in ")]}":
            while self.levels[-1].opened_by == "CASE":
                self._close()
            self._close()
        elif symbol == "," and level.is_from:
            self._add_plan(_PLAN_COSTS["JOIN"])
        elif symbol in ",;":
            level.end_item()
        else:
            self._add_operator()

    def _close(self) -> None:
        if len(self.levels) == 1:
            return  # The parser reports the error.
        depth = self.levels.pop().depth + 1
        self.levels[-1].inner = max(self.levels[-1].inner, depth)
        self._check()

    def _add_operator(self) -> None:
        self.levels[-1].operators += 1
        self._check()

    def _add_plan(self, cost: int) -> None:
        self.plan += cost
        self._check()

    def _check(self) -> None:
        if self.levels[-1].depth + self.plan > _DEPTH_MAX:
            raise InvalidRequestError(
                "the statement has too many operators or joins (expected a depth of at most "
                f"{_DEPTH_MAX:,}): use IN (...) to compare with many values"
            )


ALLOWED = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
"""Read-only statements: no DDL, DML, COPY, SET or PREPARE, also within an EXPLAIN."""
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
# The last one is the error for a footer with other columns.
_FILE_ERRORS = ("Parquet", "Object Store error", "IO error", "missing from the physical schema")
# The engine evaluates some conditions of a statement while it reads a file. A condition on deleted
# rows reads a key file, whose errors have their class in the text.
_CONDITION_ERROR = "Error evaluating filter predicate: "
_KEY_FILE_ERROR = f"{DataError.__name__}: "
# The text of an error of Python has its class, its place in the code, and more.
_NOT_JSON = re.compile(
    rf"value: {NotJsonError.__name__}\(.(?P<reason>.*?).\), traceback: ", re.DOTALL
)


def find_tables(statement: str, names: Iterable[str]) -> list[str]:
    """Returns the table names that occur in the statement, perhaps not as tables.

    A table's name cannot contain a quote, so in SQL it is written unchanged except for its case,
    and not next to a letter or digit.
    """
    text = statement.casefold()
    return [n for n in names if re.search(rf"(?<!\w){re.escape(n.casefold())}(?!\w)", text)]


def check_not_explain(frame: DataFrame) -> None:
    """Raises `InvalidRequestError` for an EXPLAIN, which restricted callers may not run.

    A plan shows filters on hidden fields and counts hidden rows.
    """
    if is_explain(frame):
        raise InvalidRequestError(
            "EXPLAIN requires unrestricted access to every table of the statement"
        )


def is_explain(frame: DataFrame) -> bool:
    """Returns whether the rows of the statement are a plan."""
    return frame.logical_plan().display().startswith(("Explain", "Analyze"))


def remove_folders(plans: pa.RecordBatch, folders: Iterable[str]) -> pa.RecordBatch:
    """Returns the rows of an EXPLAIN without the folders and buckets of files."""
    columns = []
    for column in plans.columns:
        if pa.types.is_string(column.type):
            # The pattern below does not match paths with blanks or commas.
            for folder in folders:
                plain = folder.rpartition("://")[2].strip("/")
                for text in {plain, quote(plain)} - {""}:
                    column = pc.replace_substring(column, text, "")
            column = pc.replace_substring_regex(column, _FILE_PATH, r"\1")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=plans.schema)


@contextlib.contextmanager
def planning_errors(names: Iterable[str]) -> Iterator[None]:
    """Translates planning errors of the engine into `InvalidRequestError`."""
    try:
        yield
    except SleeperError:
        raise
    except Exception as error:
        raise classify_error(
            error, _explain_error(str(error), names), InvalidRequestError
        ) from error


@contextlib.contextmanager
def statement_errors() -> Iterator[None]:
    """Translates `DataError` that is not about files, such as a division by zero."""
    try:
        yield
    except DataError as error:
        text = str(error.__cause__ or error)
        cause = error.__cause__
        is_panic = not isinstance(cause, Exception) or type(cause).__name__ == "RustPanic"
        _, _, reason = text.rpartition(_CONDITION_ERROR)
        if is_panic or any(part in reason for part in (*_FILE_ERRORS, _KEY_FILE_ERROR)):
            raise
        if match := _NOT_JSON.search(reason):
            reason = match["reason"]
        raise InvalidRequestError(f"the statement failed: {_strip_prefixes(reason)}") from error


def _explain_error(text: str, names: Iterable[str]) -> str:
    if match := _NOT_ALLOWED.search(text):
        return f"only SELECT and EXPLAIN are allowed, not {match.group(1)}"
    if "information_schema" in text:
        return f"no information_schema; {_list_tables(names)}"
    if name := _missing_name(text, _NO_FUNCTION):
        return f"no table function {name!r}: only tables can be read; {_list_tables(names)}"
    if name := _missing_name(text, _NO_TABLE):
        return f"no table {name.removeprefix('datafusion.public.')!r}; {_list_tables(names)}"
    return f"invalid SQL: {_strip_prefixes(text)}"


def _missing_name(text: str, before: str) -> str | None:
    """Returns the name between `before` and the last "not found" of the text.

    The caller chooses the name, which may contain both, so a pattern could backtrack for long.
    """
    _, start, rest = text.partition(before)
    name, end, _ = rest.rpartition(_NOT_FOUND)
    return name if start and end else None


def _list_tables(names: Iterable[str]) -> str:
    listed = ", ".join(sorted(names)[:50])
    return f"tables are: {listed}" if listed else "there are no tables"


def _strip_prefixes(text: str) -> str:
    plain = " ".join(_PREFIX.sub("", text.strip()).split())
    return _PARSER_ERROR.sub(r"\1", plain)
