"""What a statement may say, which tables it names, and the engine's complaints as ours."""

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from datafusion import DataFrame, SQLOptions

from sleeper.errors import DataError, InvalidRequestError, SleeperError, classify_error

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
_TOKEN = re.compile(
    r"""(?P<blank>\s++|--[^\r\n]*+(?:\r?\n|\Z))
    |(?P<comment>/\*)
    |(?P<text>[eE]'(?:[^'\\]|\\.|'')*+'|'(?:[^']|'')*+')
    |(?P<name>"(?:[^"]|"")*+"|`(?:[^`]|``)*+`)
    |(?P<dollar>(?<![\w@\#$])\$\w*+\$)
    |(?P<number>\d++(?:\.\d++)?+(?:[eE][+-]?+\d++)?+)
    |(?P<word>\w++)
    |(?P<symbol>(?!--)[^'"`$])""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_MARK = re.compile(r"/\*|\*/")
# Literals such as q'[...]' end at a mark of their own.
_QUOTED_WORDS = frozenset(("Q", "NQ"))
_BEFORE_NAMES = frozenset(("", ",", "WITH", "RECURSIVE", "FROM", "JOIN", "AS"))


def check_statement(statement: str) -> None:
    """InvalidRequestError if the statement is too deep for the engine, or samples a table: the
    engine would silently give all rows.
    """
    depth = _Depth()
    before = previous = ""
    for kind, token in _tokens(statement):
        is_sample = token == "(" and previous == "SAMPLE" and before not in _BEFORE_NAMES
        if token == "TABLESAMPLE" or is_sample:
            raise InvalidRequestError("TABLESAMPLE is not supported")
        if kind == "word":
            depth.add_word(token)
        elif kind == "symbol":
            depth.add_symbol(token)
        before, previous = previous, token


@dataclass(slots=True)
class _Level:
    """An open parenthesis or CASE. Its items are siblings, so the deepest counts.

    `operators` and `inner` are those of the current item: how many operators stand in a chain,
    and how deep the deepest parenthesis in it is.
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
    """An upper bound of the depth of the tokens so far.

    `plan` is the cost of all queries and joins, however they are nested: one may refer to another
    by name.
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
            if symbol == "[":  # `a[1][2]` is a chain
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
            return  # the parser says what is wrong
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
                f"{_DEPTH_MAX:,}): compare with many values by IN (...)"
            )


def _tokens(statement: str) -> Iterator[tuple[str, str]]:
    """Kinds and tokens, words in upper case, without blanks and comments."""
    place, word_end = 0, -1
    while place < len(statement):
        found = _TOKEN.match(statement, place)
        if found is None or (found.lastgroup == "text" and place == word_end):
            raise InvalidRequestError(f"wrong SQL: unexpected {statement[place : place + 50]!r}")
        kind, token, end = str(found.lastgroup), found[0], found.end()
        if kind == "comment":
            end = _comment_end(statement, end)
        elif kind == "dollar":
            closed = statement.find(token, end)
            if closed < 0:
                raise InvalidRequestError(f"wrong SQL: no end of {token[:50]}")
            end = closed + len(token)
        if kind == "word":
            token = token.upper()
            word_end = end if token in _QUOTED_WORDS else -1
        if kind not in {"blank", "comment"}:
            yield kind, token
        place = end


def _comment_end(statement: str, place: int) -> int:
    """Where the comment ends that opened before this place; comments nest."""
    depth = 1
    for mark in _COMMENT_MARK.finditer(statement, place):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    raise InvalidRequestError("wrong SQL: a comment has no end")


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


def find_tables(statement: str, names: Iterable[str]) -> list[str]:
    """The names that occur in the statement; those that it does not name may be among them.

    A table's name cannot have a quote in it, so in SQL it is always written out, if
    perhaps in other case, with no letter or digit at either end.
    """
    text = statement.casefold()
    return [n for n in names if re.search(rf"(?<!\w){re.escape(n.casefold())}(?!\w)", text)]


def check_not_explain(frame: DataFrame) -> None:
    """InvalidRequestError if the statement is an EXPLAIN, for whoever may not see all rows.

    A plan names filters on fields that are hidden, and counts rows that are.
    """
    if is_explain(frame):
        raise InvalidRequestError("EXPLAIN is for callers who may see all of the tables it names")


def is_explain(frame: DataFrame) -> bool:
    """Whether the statement's rows are a plan."""
    return frame.logical_plan().display().startswith(("Explain", "Analyze"))


def remove_folders(plans: pa.RecordBatch, folders: Iterable[str]) -> pa.RecordBatch:
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
        raise classify_error(error, _explained(str(error), names), InvalidRequestError) from error


@contextlib.contextmanager
def statement_errors() -> Iterator[None]:
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
