"""Adapters load tables from databases with Spark."""

import runpy
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import sleeper
from sleeper.adapters.definition import Adapter, Engine, TableSink
from sleeper.adapters.run import AdapterRun, run_adapter
from sleeper.adapters.spark.database_load import local_databases
from sleeper.adapters.store import AdapterStore
from sleeper.cli.main import app
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.jobs.status import JobState
from sleeper.opening import open_instance
from sleeper.retries import RETRY_VARIABLE
from sleeper.spark.settings import SparkSettings
from tests.servers.aws_instance import AwsInstance
from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.spark.test_jdbc import source_of

Database = Postgres | MariaDB
SCHEMA: dict[str, Any] = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [{"name": "name", "type": "StringType", "nullable": True}],
}


@pytest.fixture(params=["postgres", "mariadb"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(f"{request.param}_database")
    return found


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", Postgres.password)


@pytest.fixture
def ports(instance: sleeper.Instance, tmp_path: Path) -> Iterator[Instance]:
    """The instance below its Python API."""
    with closing(open_instance(tmp_path / "instance")) as opened:
        yield opened


def create_adapter(instance: Instance, database: Database, **more: Any) -> Adapter:
    source = source_of(database, password="env:SHOP_PASSWORD", engine=Engine.SPARK, **more)
    adapter = Adapter("shop", source, TableSink("orders"))
    AdapterStore(instance.storage.root).create(adapter)
    return adapter


def run(instance: Instance, run_id: str | None = None) -> AdapterRun:
    with local_databases(instance, SparkSettings("local[2]")) as spark:
        return run_adapter(instance, "shop", run_id, spark=spark)


def staged_files(instance: Instance) -> list[Path]:
    files = Path(instance.where).rglob("*.parquet")
    return [path for path in files if "staged" in path.parts]


def test_each_load_shows_all_changes_of_the_database(
    spark: SparkSession, instance: sleeper.Instance, ports: Instance, database: Database
) -> None:
    """The steps of the request: load, insert, delete, insert."""
    database.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, name varchar(20), amount int);"
        "INSERT INTO orders VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 1), (4, NULL, 1)"
    )
    table = instance.create_table("orders", SCHEMA, {"sleeper.table.type": "snapshot"})
    changes = [
        "INSERT INTO orders VALUES (5, 'e', 1)",
        "DELETE FROM orders WHERE id = 2",
        "INSERT INTO orders VALUES (6, 'f', 1)",
    ]
    expected = [
        {1: "a", 2: "b", 3: "c", 4: None},
        {1: "a", 2: "b", 3: "c", 4: None, 5: "e"},
        {1: "a", 3: "c", 4: None, 5: "e"},
        {1: "a", 3: "c", 4: None, 5: "e", 6: "f"},
    ]
    create_adapter(ports, database, partition_column="id", partitions=2)
    for step, rows in enumerate(expected):
        result = run(ports, f"run-{step}")
        assert result.rows == len(rows)
        assert (result.note is None) == isinstance(database, Postgres)
        found = table.query().to_arrow().to_pylist()
        assert {row["id"]: row["name"] for row in found} == rows
        repeated = run(ports, f"run-{step}")
        assert (repeated.done_before, repeated.number) == (True, result.number)
        if changes:
            database.run(changes.pop(0))
    assert staged_files(ports) == []


def test_a_failed_run_leaves_nothing(
    spark: SparkSession, instance: sleeper.Instance, ports: Instance, database: Database
) -> None:
    """A value that does not fit, and a column that was dropped after the adapter was created."""
    database.run("CREATE TABLE orders (id bigint, name varchar(20))")
    database.run("INSERT INTO orders VALUES (1, 'a'), (NULL, 'b')")
    table = instance.create_table("orders", SCHEMA)
    adapter = create_adapter(ports, database)
    where = source_of(database).describe()
    failures = []
    for number, statement in enumerate(
        ("ALTER TABLE orders DROP COLUMN name", "DROP TABLE orders")
    ):
        with pytest.raises(InvalidRequestError) as caught:
            run(ports, f"r{number}")
        failures.append(str(caught.value))
        database.run(statement)
    assert failures == [
        f"{where}: row with id None: field 'id' (LongType): null, but the field is not nullable",
        f"{where} has no column 'name' for the field of that name (expected columns id, name)",
    ]
    assert staged_files(ports) == []
    assert table.query().to_arrow().num_rows == 0
    table_id = ports.table("orders").ref.id
    tracked = [ports.jobs.tracker.job(table_id, adapter.job_id(f"r{number}")) for number in (0, 1)]
    assert [job.last_run.reasons for job in tracked if job.last_run] == [(f,) for f in failures]
    assert {job.state for job in tracked} == {JobState.REJECTED}


def test_the_driver_of_a_platform_runs_an_adapter(
    spark: SparkSession,
    instance: sleeper.Instance,
    ports: Instance,
    postgres_database: Postgres,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The program runs in this process, on its Spark, with the ids of the run and its tracker."""
    postgres_database.run("CREATE TABLE orders AS SELECT 1 AS id, 'a' AS name")
    table = instance.create_table("orders", SCHEMA)
    adapter = create_adapter(ports, postgres_database)
    monkeypatch.setenv(RETRY_VARIABLE, "20")
    arguments = ["--adapter", "shop", "--adapter-run", "r1", "--run-id", "t1"]
    program = Path(__file__).parents[2] / "containers/bulk_import/main.py"
    monkeypatch.setattr(sys, "argv", [str(program), ports.where, *arguments])
    lines = []
    for expected_status in (0, 0):
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(program), run_name="__main__")
        assert ended.value.code == expected_status
        lines.append(capfd.readouterr().err.splitlines()[-1])
    assert lines == ["adapter shop: 1 rows", "adapter shop: done before"]
    assert table.query().to_arrow().to_pylist() == [{"id": 1, "name": "a"}]
    found = ports.jobs.tracker.job(ports.table("orders").ref.id, adapter.job_id("r1"))
    assert [(each.run_id, each.state) for each in found.runs] == [("t1", JobState.COMMITTED)]


def test_rows_are_staged_in_the_bucket_of_imports(
    spark: SparkSession, aws: AwsInstance, postgres_database: Postgres
) -> None:
    postgres_database.run("CREATE TABLE orders AS SELECT i AS id, 'a' AS name"
                          " FROM generate_series(0, 99) AS i")  # fmt: skip
    with sleeper.open_instance(aws.where) as instance:
        table = instance.create_table("orders", SCHEMA, {"sleeper.table.type": "snapshot"})
        ports = table._instance
        create_adapter(ports, postgres_database, partition_column="id", partitions=3)
        read: list[int] = []

        def on_stage(stage: str) -> None:
            if stage == "plan":
                read.extend(each.bytes for each in ports.storage.imports().list_objects("staged"))

        with local_databases(ports, SparkSettings("local[2]"), on_stage) as databases:
            assert run_adapter(ports, "shop", spark=databases).rows == 100
        assert len(read) == 3
        assert list(ports.storage.imports().list_objects("staged")) == []
        assert sorted(table.query().to_arrow()["id"].to_pylist()) == list(range(100))


def test_commands_read_a_database_with_spark(
    spark: SparkSession,
    instance: sleeper.Instance,
    ports: Instance,
    mariadb_database: MariaDB,
) -> None:
    def sleeper_command(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["--instance", ports.where, "adapter", *arguments])
        return result.exit_code, result.stderr

    mariadb_database.run("CREATE TABLE orders (id int); INSERT INTO orders VALUES (1), (2)")
    instance.create_table("orders", {"rowKeyFields": [{"name": "id", "type": "LongType"}]})
    create = ["create", "shop", "--source", mariadb_database.url, "--sink", "orders"]
    create += ["--password", "env:SHOP_PASSWORD", "--table"]
    status, text = sleeper_command(*create, "nothing")
    assert (status, "nothing' doesn't exist" in text) == (1, True), text
    parts = ["--partition-column", "id", "--partitions", "2"]
    assert sleeper_command(*create, "orders", *parts)[0] == 0
    status, text = sleeper_command("run", "shop", "--run-id", "r1")
    assert status == 0, text
    note, result = text.splitlines()
    assert note.startswith("note: 2 parts of a mariadb database were read in separate transactions")
    assert result.startswith("2 rows in ")
