"""Functions of JSON in SQL, compared with those of a PostgreSQL server."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sleeper.datafiles.documents.path import Step
from sleeper.query.sql.json_operators import rewrite_json
from sleeper.query.sql.session import open_sql_session
from tests.servers.postgres import Postgres
from tests.tables.data_table import make_engine
from tests.tables.json_documents import PATHS, VALUES, Number, written

DOCUMENTS = st.lists(VALUES.flatmap(written), min_size=10, max_size=30)
# Small ones, which documents contain.
CANDIDATES = st.one_of(
    VALUES.flatmap(written),
    st.sampled_from(
        ["[]", "{}", "1.1", "1.100", '"a"', "[null]", '{"a":{}}', '[["a"]]', "[[],[]]"]
    ),
)


def part(value: Any) -> str:
    """Writes a value without some of its members and elements, which the whole value contains."""
    if isinstance(value, dict):
        names = list(value)[::2]
        return "{" + ",".join(f"{json.dumps(each)}:{part(value[each])}" for each in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(part, value[::-2])) + "]"
    return str(value) if isinstance(value, Number) else json.dumps(value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("json")


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def literal(step: Step) -> str:
    return quote(step) if isinstance(step, str) else str(step)


def read_ours(folder: Path, documents: list[str], expressions: list[str]) -> list[list[Any]]:
    session = open_sql_session(make_engine(folder).settings.engine)
    session.from_arrow(pa.table({"j": documents}), "t")
    columns = ", ".join(f"{each} AS c{number}" for number, each in enumerate(expressions))
    statement = rewrite_json(f"SELECT {columns} FROM t", {})
    batches = session.sql(statement).collect()
    return [
        [value.as_py() for value in row]
        for batch in batches
        for row in zip(*batch.columns, strict=True)
    ]


def read_theirs(server: Postgres, documents: list[str], expressions: list[str]) -> list[list[Any]]:
    statement = f"""
        SELECT json_build_array({", ".join(expressions)}) FROM (
            SELECT (value #>> '{{}}')::json AS j, ordinality
            FROM json_array_elements({quote(json.dumps(documents))}::json) WITH ORDINALITY
        ) AS d ORDER BY ordinality;"""
    return [json.loads(line) for line in server.run(statement)]


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(DOCUMENTS, PATHS.filter(bool), CANDIDATES)
def test_values_are_those_of_postgresql(
    postgres_server: Postgres,
    folder: Path,
    documents: list[str],
    path: tuple[Step, ...],
    candidate: str,
) -> None:
    *parents, last = map(literal, path)
    parent = " -> ".join(["j", *parents])
    shared = [f"{parent} ->> {last}", f"json_typeof({parent} -> {last})"]
    contained = part(json.loads(documents[0], parse_int=Number, parse_float=Number))
    ours = [
        *shared,
        f"{parent} -> {last} || ''",
        f"j @> {quote(candidate)}",
        f"j @> {quote(contained)}",
        "json_length(j)",
        "json_keys(j)",
    ]
    theirs = [
        *shared,
        f"({parent} -> {last})::text",
        f"j::jsonb @> {quote(candidate)}::jsonb",
        f"j::jsonb @> {quote(contained)}::jsonb",
        "CASE json_typeof(j) WHEN 'array' THEN json_array_length(j)"
        " WHEN 'object' THEN (SELECT count(*) FROM json_object_keys(j)) END",
        "CASE json_typeof(j) WHEN 'object' THEN"
        " (SELECT coalesce(json_agg(k), '[]') FROM json_object_keys(j) AS k) END",
    ]
    assert read_ours(folder, documents, ours) == read_theirs(postgres_server, documents, theirs)
