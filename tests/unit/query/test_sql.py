"""SQL over the tables of an instance: rows and refused statements."""

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from sleeper.errors import (
    DataError,
    InvalidRequestError,
    NotFoundError,
    StateMovedOnError,
    UnavailableError,
)
from sleeper.query.engine import QueryTable
from sleeper.query.sql.statement import run_sql
from sleeper.query.sql.text import find_tables, planning_errors
from sleeper.schema.model import Field, PrimitiveType, Schema
from tests.tables.data_table import DataTable, list_rows, make_engine

pytestmark = pytest.mark.usefixtures("holds_of_reads")

SCHEMA = Schema(
    (Field("id", PrimitiveType.STRING),), (), (Field("Count", PrimitiveType.LONG, nullable=True),)
)


class Instance:
    """Two tables, one with a name that needs quotes, and a deleted one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "one").mkdir()
        (folder / "two").mkdir()
        self.flights = DataTable(folder / "one", SCHEMA, ["b"])
        self.planes = DataTable(folder / "two", SCHEMA)
        self.flights.add_rows([("a", 1), ("b", 2), ("c", None)])
        self.planes.add_rows([("b", 20)])
        self.opened_names: list[str] = []

    def open(self, name: str) -> QueryTable:
        self.opened_names.append(name)
        if name == "gone":
            raise NotFoundError("no table gone")
        table = self.flights if name == "flights" else self.planes
        return QueryTable(name, table.store, table.root)

    def sql(self, statement: str) -> pa.Table:
        names = ("flights", "Plane Types.2", "gone")
        openers = {name: lambda name=name: self.open(name) for name in names}
        return run_sql(statement, openers, make_engine(self.folder)).read_all()

    def holds(self) -> int:
        return sum(len(table.holds()) for table in (self.flights, self.planes))


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return Instance(tmp_path)


def test_tables_are_joined_under_their_names(instance: Instance):
    result = instance.sql(
        'SELECT f.id, f."Count", p."Count" FROM FLIGHTS f JOIN "Plane Types.2" p ON f.id = p.id'
    )
    assert result.schema.names == ["id", "Count", "Count_2"]
    assert result.schema.field("id").type == pa.string()
    assert list_rows(result) == [("b", 2, 20)]


def test_only_named_tables_are_opened(instance: Instance):
    assert list_rows(instance.sql("SELECT count(*) FROM flights")) == [(3,)]
    assert instance.opened_names == ["flights"]


def test_table_name_within_a_longer_word_does_not_match():
    names = ["t", "T-2", "a.b", "flights", "Ü"]
    assert find_tables("SELECT count(*) FROM flights_2", names) == []
    assert find_tables('SELECT t.x FROM FLIGHTS AS t, "T-2"', names) == ["t", "T-2", "flights"]
    assert find_tables('SELECT * FROM"a.b"JOIN ü', names) == ["a.b", "Ü"]


def test_empty_table_has_its_columns(instance: Instance, tmp_path: Path):
    (tmp_path / "three").mkdir()
    table = DataTable(tmp_path / "three", SCHEMA)
    result = run_sql("SELECT * FROM t", {"t": lambda: table.query_table}, make_engine(tmp_path))
    assert result.schema.names == ["id", "Count"]
    assert result.read_all().num_rows == 0


def test_explain_describe_and_values_return_rows(instance: Instance):
    assert "plan" in instance.sql("EXPLAIN SELECT * FROM flights").schema.names
    assert instance.sql("DESCRIBE flights").column(0).to_pylist() == ["id", "Count"]
    assert list_rows(instance.sql("VALUES (1, 'x')")) == [(1, "x")]


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("SELECT * FROM '/etc/passwd'", "no table '/etc/passwd'; tables are: .*flights"),
        ("SELECT * FROM read_csv('/etc/passwd')", "no table function 'read_csv'"),
        ("SELECT * FROM read_parquet('s3://a/b')", "no table function 'read_parquet'"),
        ("SELECT * FROM parquet_metadata('/etc/passwd')", "no table function"),
        ("COPY (SELECT 1) TO '{folder}/out.csv'", "only SELECT"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/out.csv'", "only SELECT"),
        ("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'", "only SELECT"),
        ("CREATE TABLE t AS SELECT 1", "only SELECT"),
        ("CREATE VIEW v AS SELECT 1", "only SELECT"),
        ("DROP TABLE flights", "only SELECT"),
        ("INSERT INTO flights VALUES ('a', 1)", "only SELECT"),
        ("UPDATE flights SET id = 'x'", "only SELECT"),
        ("DELETE FROM flights", "only SELECT"),
        ("SET datafusion.execution.batch_size = 1", "only SELECT"),
        ("PREPARE p AS SELECT 1", "only SELECT"),
        ("SHOW TABLES", "tables are: .*flights"),
        ("SELECT * FROM information_schema.tables", "tables are: "),
        ("SELECT getenv('HOME')", "getenv"),
        ("SELECT 1; SELECT 2", "single"),
        ("", "invalid SQL"),
        (
            "SELEC 1",
            "^invalid SQL: Expected: an SQL statement, found: SELEC at Line: 1, Column: 1$",
        ),
        ("SELECT nope FROM flights", "nope.*id"),
        ("SELECT * FROM nope", "no table 'nope'; tables are: .*flights"),
        ("SELECT * FROM gone", "no table 'gone'"),
        ('SELECT 1 / ("Count" - "Count") FROM flights', "zero"),
        ("SELECT CAST(id AS INT) FROM flights", "[Cc]ast"),
        # Conditions beside one on a key are evaluated while a file is read.
        ("SELECT id FROM flights WHERE id > 'a' AND 1 / (\"Count\" - 2) = 0", "failed: .*Zero"),
    ],
)
def test_wrong_and_forbidden_statements_are_refused(
    instance: Instance, statement: str, complaint: str
):
    with pytest.raises(InvalidRequestError, match=complaint):
        instance.sql(statement.replace("{folder}", str(instance.folder)))
    assert not (instance.folder / "out.csv").exists()
    assert instance.holds() == 0


def test_statement_holds_its_versions_until_its_end(instance: Instance):
    engine = make_engine(instance.folder)
    openers = {"flights": lambda: instance.open("flights")}
    result = run_sql("SELECT * FROM flights", openers, engine)
    assert instance.holds() == 1
    instance.flights.add_rows([("z", 26)])
    assert sorted(r[0] for r in list_rows(result.read_all())) == ["a", "b", "c"]
    assert instance.holds() == 0


def test_missing_file_is_never_skipped(instance: Instance):
    with instance.flights.store.reading() as state:
        (file,) = state.files.all()
    path = Path(instance.flights.root.url_of(file.path))
    os.rename(path, path.with_suffix(".away"))
    with pytest.raises(StateMovedOnError, match="missing"):
        instance.sql("SELECT count(*) FROM flights")
    path.write_bytes(b"PAR1 this is no parquet file PAR1")
    with pytest.raises(DataError, match=f"{file.path} is damaged"):
        instance.sql("SELECT * FROM flights")
    assert instance.holds() == 0


def test_memory_limit_error_names_the_property(instance: Instance, tmp_path: Path):
    engine = make_engine(tmp_path, memory_bytes=1_000_000)
    statement = "SELECT array_agg(value) FROM generate_series(1, 3000000)"
    with pytest.raises(UnavailableError, match=r"\(see sleeper\.query\.memory\.bytes\)"):
        run_sql(statement, {}, engine).read_all()


@pytest.mark.parametrize("explain", ["EXPLAIN", "EXPLAIN ANALYZE", "EXPLAIN VERBOSE"])
def test_explain_names_files_without_their_folders(tmp_path: Path, explain: str) -> None:
    folder = tmp_path / "a folder, with ünusual [name]"
    folder.mkdir()
    result = Instance(folder).sql(f"{explain} SELECT * FROM flights")
    text = "\n".join(map(str, list_rows(result)))
    assert ".parquet" in text
    for part in ("one/data", "folder", tmp_path.name):
        assert part not in text


def test_statements_cannot_read_the_names_of_files(instance: Instance) -> None:
    with pytest.raises(InvalidRequestError, match="input_file_name"):
        instance.sql("SELECT input_file_name() FROM flights")


def test_column_name_that_arrow_rejects_is_refused(instance: Instance) -> None:
    with pytest.raises(InvalidRequestError, match="Null byte"):
        instance.sql("SELECT $$a\x00b$$")


def test_samples_are_refused(instance: Instance) -> None:
    with pytest.raises(InvalidRequestError, match="TABLESAMPLE is not supported"):
        instance.sql("SELECT count(*) FROM flights TABLESAMPLE (10)")


def test_error_with_a_long_name_is_parsed_in_linear_time() -> None:
    text = "table '" * 50_000 + "\n' not found"
    start = time.process_time()
    with pytest.raises(InvalidRequestError), planning_errors(()):
        raise ValueError(text)
    assert time.process_time() - start < 2
