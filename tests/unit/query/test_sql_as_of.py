"""SQL over earlier versions of tables."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.query.engine import QueryTable
from sleeper.query.sql.explain import explain_sql
from sleeper.query.sql.statement import run_sql
from sleeper.query.sql.tables import AsOf, parse_as_of, parse_as_of_options
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.statestore.version import parse_version
from tests.tables.data_table import DataTable, list_rows, make_engine

pytestmark = pytest.mark.usefixtures("holds_of_reads")

SCHEMA = Schema(
    (Field("id", PrimitiveType.STRING),), (), (Field("n", PrimitiveType.LONG, nullable=True),)
)


class Instance:
    """Tables `a` and `b`, each with a row of transaction 2 and one of transaction 3."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tables: dict[str, DataTable] = {}
        for name in ("a", "b"):
            (folder / name).mkdir()
            self.tables[name] = DataTable(folder / name, SCHEMA)
            self.tables[name].add_rows([(f"{name} first", 1)])
            self.tables[name].add_rows([(f"{name} second", 2)])

    def openers(self) -> dict[str, Any]:
        return {
            name: lambda table=table, name=name: QueryTable(name, table.store, table.root)
            for name, table in self.tables.items()
        }

    def sql(self, statement: str, as_of: Any) -> list[Any]:
        engine = make_engine(self.folder)
        result = run_sql(statement, self.openers(), engine, as_of=parse_as_of(as_of))
        return list_rows(result.read_all())

    def holds(self) -> int:
        return sum(len(table.holds()) for table in self.tables.values())


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return Instance(tmp_path)


def test_single_table_is_read_as_of_a_number(instance: Instance):
    assert instance.sql("SELECT id FROM a", 1) == []
    assert instance.sql("SELECT id FROM a", 2) == [("a first",)]
    assert instance.sql("SELECT count(*) FROM a", 3) == [(2,)]
    assert instance.sql("SELECT count(*) FROM a AS x JOIN a AS y ON x.id = y.id", 2) == [(1,)]


def test_each_table_is_read_as_of_its_own_number(instance: Instance):
    statement = "SELECT id FROM a UNION ALL SELECT id FROM b ORDER BY id"
    assert instance.sql(statement, {"a": 2, "b": 1}) == [("a first",)]
    assert instance.sql(statement, {"b": 1}) == [("a first",), ("a second",)]


def test_time_applies_to_all_tables(instance: Instance):
    statement = "SELECT id FROM a UNION ALL SELECT id FROM b ORDER BY id"
    clock = instance.tables["a"].clock
    before = datetime.fromtimestamp(clock() / 1000, UTC)
    clock.now_ms += 60_000
    instance.tables["a"].add_rows([("a third", 3)])
    after = datetime.fromtimestamp(clock() / 1000, UTC)
    expected = [("a first",), ("a second",), ("b first",), ("b second",)]
    assert instance.sql(statement, before) == expected
    assert instance.sql(statement, {"a": before.isoformat(), "b": 2}) == expected[:3]
    assert len(instance.sql(statement, after)) == 5


def test_words_that_are_not_tables_are_ignored(instance: Instance):
    assert instance.sql("SELECT 'b' AS b FROM a", 2) == [("b",)]
    assert instance.sql("WITH b AS (SELECT * FROM a) SELECT id FROM b", 2) == [("a first",)]


def test_old_version_is_narrowed_and_explained(instance: Instance):
    engine = make_engine(instance.folder)
    statement = "SELECT * FROM a WHERE id = 'a second'"
    (old,) = explain_sql(statement, instance.openers(), engine, AsOf(2)).reads
    (new,) = explain_sql(statement, instance.openers(), engine, AsOf(3)).reads
    assert (old.version, old.files, old.files_of) == (2, 0, 1)
    assert (new.version, new.files, new.files_of) == (3, 1, 2)
    assert 0 < old.bytes_of < new.bytes_of
    leaf = instance.tables["a"].leaves()[0]
    instance.tables["a"].compact_partition(leaf)
    instance.tables["a"].split_at(leaf.id, "b")
    (again,) = explain_sql(statement, instance.openers(), engine, AsOf(3)).reads
    assert replace(again, bytes_read=new.bytes_read) == new


@pytest.mark.parametrize(
    ("statement", "as_of", "complaint"),
    [
        ("SELECT * FROM a", 99, "table 'a': version 99 does not exist yet: the newest is 3"),
        ("SELECT * FROM a", 0, "as of 0: expected a transaction number"),
        ("SELECT * FROM a", True, "as of True"),
        ("SELECT * FROM a", "2", "as of '2'"),
        ("SELECT * FROM a", {"a": 1.5}, "as of 1.5"),
        ("SELECT * FROM a", {"b": 2}, "'b': not a table of the statement; it names a"),
        (
            "SELECT * FROM a, b",
            2,
            "a statement of several tables requires TABLE=N for each; it names a, b",
        ),
        ("SELECT 1", 2, "it names no table"),
        ("SELECT 1", "2h", "it names no table"),
        ("SELECT * FROM a", "1970-01-01", "table 'a': as of 1970-01-01: the table did not exist"),
        ("SELECT nope FROM a", 2, "invalid SQL"),
    ],
)
def test_invalid_versions_are_refused(
    instance: Instance, statement: str, as_of: Any, complaint: str
):
    with pytest.raises(InvalidRequestError, match=complaint):
        instance.sql(statement, as_of)
    assert instance.holds() == 0


def test_collected_version_is_refused_with_the_oldest(instance: Instance):
    table = instance.tables["a"]
    table.compact_partition(table.leaves()[0])
    table.remove_unreferenced_files()
    with table.store.reading() as state:
        oldest = state.oldest_version
    assert oldest > 2
    with pytest.raises(InvalidRequestError, match=f"is no longer readable.* {oldest}"):
        instance.sql("SELECT * FROM a", 2)
    with pytest.raises(InvalidRequestError, match=f"no longer readable.* {oldest}, is of "):
        instance.sql("SELECT * FROM a", "1970-01-01")


def test_options_are_parsed():
    assert parse_as_of_options([]) == AsOf()
    assert parse_as_of_options(["3"]) == AsOf(3)
    time = "2026-01-31T12:00:00+00:00"
    point = parse_version(time)
    assert parse_as_of_options([time]) == AsOf(point)
    assert parse_as_of_options(["a=" + time, "b=3"]) == AsOf(None, {"a": point, "b": 3})
    assert parse_as_of_options(["a=3", "b=c=4"]) == AsOf(None, {"a": 3, "b=c": 4})


@pytest.mark.parametrize("texts", [["x"], ["a="], ["-1"], ["0"], ["3", "4"], ["a=1", "a=2"], ["²"]])
def test_options_that_are_not_numbers_are_refused(texts: list[str]):
    with pytest.raises(InvalidRequestError, match="as of "):
        parse_as_of_options(texts)
