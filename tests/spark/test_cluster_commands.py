"""Bulk exports, stashes and adapters on a cluster that one process of commands uses."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

import sleeper
from sleeper.opening import open_instance
from sleeper.properties.instance import SPARK_CONF, SPARK_MASTER
from tests.infra.root_filesystem import why_impossible
from tests.servers.postgres import Postgres
from tests.spark.imports import PATIENCE_SECONDS, SCHEMA
from tests.spark.java import VARIABLE as JAVA_OPTIONS
from tests.spark.session import preloading
from tests.spark.standalone import standalone_master, standalone_worker
from tests.spark.test_database_load import create_adapter
from tests.system.documents import ROOT
from tests.system.test_docs import CLUSTER_MASTER, ON_CLUSTER, check_page, surroundings

ROWS = [{"k": f"{i:03d}", "s": i, "v": f"value {i}"} for i in range(200)]
SOURCE = {"rowKeyFields": [{"name": "id", "type": "LongType"}]}
# One Java process for all commands.
PROGRAM = """
import json, sys
from typer.testing import CliRunner
from sleeper.cli.main import app

for line in sys.stdin:
    result = CliRunner().invoke(app, json.loads(line))
    print(json.dumps([result.exit_code, result.stdout, result.stderr]))
"""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    status: int
    stdout: str
    stderr: str


def spark_variables() -> dict[str, str]:
    """Returns the environment of commands whose workers run this Python."""
    return preloading(
        {
            **os.environ,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "PYSPARK_PYTHON": sys.executable,
            "JDK_JAVA_OPTIONS": os.environ[JAVA_OPTIONS],
            "SHOP_PASSWORD": Postgres.password,
        }
    )


def run_commands(where: Path, *commands: list[str]) -> list[Outcome]:
    """Runs commands of an instance one after another in a process."""
    lines = [json.dumps(["--instance", str(where), *command]) for command in commands]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input="\n".join(lines),
        env=spark_variables(),
        capture_output=True,
        text=True,
        check=True,
        timeout=2 * PATIENCE_SECONDS,
    )
    return [Outcome(*json.loads(line)) for line in ended.stdout.splitlines()]


@dataclass(frozen=True)
class Cluster:
    """A master with a worker, whose executors see nothing in the folder `hidden`."""

    master: str
    hidden: Path
    work: Path

    def applications(self) -> set[Path]:
        """Returns a folder of each application that had an executor."""
        return set(self.work.glob("app-*"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    hidden = folder / "hidden"
    hidden.mkdir()
    with (
        standalone_master(folder) as master,
        standalone_worker(master, folder, None if why_impossible() else hidden),
    ):
        yield Cluster(master, hidden, folder / "work")


@pytest.mark.skipif(why_impossible() is not None, reason="needs mounts of its own")
def test_commands_run_on_the_master_of_the_instance(
    cluster: Cluster, tmp_path: Path, postgres_database: Postgres
) -> None:
    applications_before = cluster.applications()
    postgres_database.run("CREATE TABLE orders AS SELECT 1 AS id")
    where, exports, stashes = (tmp_path / name for name in ("instance", "exports", "stashes"))
    export, stash = ["bulk-export", "t", "--output"], ["stash", "run", "--format", "parquet"]
    to = ["--table", "t", "--destination"]
    values = {
        SPARK_MASTER.name: cluster.master,
        SPARK_CONF.name: "spark.executor.memory=512m,spark.cores.max=1",
    }
    with sleeper.create_instance(where, values) as instance:
        table = instance.create_table("t", json.loads(SCHEMA), split_points=["050", "100"])
        table.ingest(pa.Table.from_pylist(ROWS))
        instance.create_table("orders", SOURCE)
    with closing(open_instance(where)) as ports:
        create_adapter(ports, postgres_database)
    outcomes = run_commands(
        where,
        [*export, str(exports)],
        [*stash, *to, str(stashes)],
        ["adapter", "run", "shop"],
        [*stash, *to, str(cluster.hidden / "stashes")],
    )
    assert [each.status for each in outcomes] == [0, 0, 0, 1], outcomes
    assert len(cluster.applications() - applications_before) == 4
    files = sorted(Path(outcomes[0].stdout.strip()).glob("*.parquet"))
    assert len(files) == 3
    assert sorted(row["k"] for f in files for row in pq.read_table(f).to_pylist()) == [
        row["k"] for row in ROWS
    ]
    stashed = list((stashes / outcomes[1].stdout.strip()).rglob("*.parquet"))
    assert sum(pq.read_metadata(f).num_rows for f in stashed) == len(ROWS)
    with sleeper.open_instance(where) as instance:
        assert instance["orders"].query().to_arrow().to_pylist() == [{"id": 1}]
    refusal = outcomes[-1].stderr
    assert f"error: folder {cluster.hidden / 'stashes'} does not exist on host " in refusal
    assert "Traceback" not in refusal


def test_examples_of_the_page_run_on_a_cluster(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in spark_variables().items():
        monkeypatch.setenv(name, value)
    applications_before = cluster.applications()
    where = surroundings(tmp_path, monkeypatch)
    where.ports = {CLUSTER_MASTER: cluster.master}
    check_page(ROOT / "docs" / ON_CLUSTER, where)
    assert len(cluster.applications() - applications_before) == 1
