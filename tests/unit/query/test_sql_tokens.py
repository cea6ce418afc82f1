"""Statements nested too deeply for the engine are refused before planning."""

import contextlib
import subprocess
import sys
import time

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.query.sql.text import check_statement

DEEP = {
    "sum": "SELECT " + "+".join(["k"] * 10_000) + " FROM t",
    "or": "SELECT * FROM t WHERE " + " OR ".join(f"k = {i}" for i in range(10_000)),
    "casts": "SELECT k" + "::int" * 10_000 + " FROM t",
    "postfix": "SELECT k" + " IS NULL" * 10_000 + " FROM t",
    "subscripts": "SELECT k" + "[1]" * 10_000 + " FROM t",
    "nested sums": "SELECT " + "(" * 40 + "k" + ("+k" * 900 + ")") * 40 + " FROM t",
    "sums in cases": "SELECT "
    + "+".join(["k"] * 900 + ["CASE WHEN true THEN 1 END"] + ["k"] * 900)
    + " FROM t",
    "unions": " UNION ALL ".join(["SELECT k FROM t"] * 3_000),
    "differences": " EXCEPT ".join(["SELECT k FROM t"] * 500),
    "joins": "SELECT 1 FROM " + ",".join(f"t a{i}" for i in range(500)),
    "chained names": "WITH a0 AS (SELECT 1 AS x)"
    + "".join(f", a{i} AS (SELECT x FROM a{i - 1})" for i in range(1, 3_000))
    + " SELECT * FROM a2999",
    "after a literal": "SELECT E'\\'' || q" + "+k" * 2_000 + " || '' FROM t",
    "after a dollar literal": "SELECT $a$'$a$, k" + "+k" * 2_000 + ", '' FROM t",
    "after a comment": "SELECT /* /* ' */ */ k" + "+k" * 2_000 + ", '' FROM t",
}


@pytest.mark.parametrize("statement", DEEP.values(), ids=DEEP)
def test_deep_statement_is_refused(statement: str) -> None:
    with pytest.raises(InvalidRequestError, match="too many operators or joins"):
        check_statement(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM t WHERE k IN (" + ",".join(map(str, range(-50_000, 50_000))) + ")",
        "SELECT * FROM t WHERE " + " OR ".join(f"(a={i} AND b={-i})" for i in range(400)),
        "VALUES " + ",".join(f"({i} + 1, 'it''s')" for i in range(10_000)),
        "SELECT CASE k " + " ".join(f"WHEN {i} THEN {i} + 1" for i in range(2_000)) + " END FROM t",
        "SELECT " + ",".join(f"k + {i} AS c{i}" for i in range(2_000)) + " FROM t",
        " UNION ALL ".join(["SELECT k FROM t"] * 200),
        "SELECT '" + "+" * 10_000 + "', \"" + "+" * 10_000 + '" /* ' + "+" * 10_000 + " */ FROM t",
        "SELECT a.k FROM " + " JOIN ".join(f"t a{i} ON a{i}.k = a.k" for i in range(40)),
    ],
)
def test_wide_statement_is_accepted(statement: str) -> None:
    check_statement(statement)


@pytest.mark.parametrize(
    "statement",
    ["SELECT 'a", 'SELECT "a', "SELECT /* a", "SELECT $a$ b", "SELECT q'[a']'", "SELECT a$$'$$"],
)
def test_ambiguous_literal_is_refused(statement: str) -> None:
    with pytest.raises(InvalidRequestError, match="invalid SQL"):
        check_statement(statement)


@pytest.mark.parametrize(
    "sample", ["TABLESAMPLE (10)", "tablesample bernoulli (1)", "a Sample /* */ (10)"]
)
def test_sample_is_refused(sample: str) -> None:
    with pytest.raises(InvalidRequestError, match="TABLESAMPLE is not supported"):
        check_statement(f"SELECT * FROM t {sample}")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT sample, 'TABLESAMPLE (1)' FROM t -- TABLESAMPLE",
        'SELECT "tablesample" FROM sample',
        "WITH sample (a) AS (SELECT 1) SELECT a FROM sample",
    ],
)
def test_sample_may_be_a_name(statement: str) -> None:
    check_statement(statement)


@pytest.mark.parametrize("text", ["/*", "'a", "$$", "(", "''", "a ", '"', "-", "$a$"])
def test_long_statements_are_parsed_in_linear_time(text: str) -> None:
    start = time.process_time()
    with contextlib.suppress(InvalidRequestError):
        check_statement("SELECT " + text * (200_000 // len(text)))
    assert time.process_time() - start < 3


def test_deep_statement_does_not_crash_the_process() -> None:
    program = (
        "import tempfile\n"
        "from pathlib import Path\n"
        "from sleeper.errors import InvalidRequestError\n"
        "from tests.tables.data_table import make_engine\n"
        "from sleeper.query.sql.statement import run_sql\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    try:\n"
        "        run_sql('SELECT ' + '+'.join(['1'] * 10_000), {}, make_engine(Path(folder)))\n"
        "    except InvalidRequestError as error:\n"
        "        print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (run.returncode, "too many operators" in run.stdout) == (0, True), run.stderr
