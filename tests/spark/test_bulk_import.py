"""Bulk imports on a real Spark: rows stored once, whoever dies; errors of executors named."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import SparkSession

from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.jobs.event import JobKind
from sleeper.jobs.status import JobState
from sleeper.properties.table import BULK_IMPORT_LEAVES_MIN
from sleeper.spark.cluster import SparkCluster
from sleeper.spark.failures import task_errors
from sleeper.wiring.bulk_importing import bulk_import_paths
from sleeper.wiring.instance import Instance
from sleeper.wiring.opening import make_instance, open_instance
from sleeper.wiring.tables import create_table

SCHEMA = json.dumps(
    {
        "rowKeyFields": [{"name": "k", "type": "StringType"}],
        "sortKeyFields": [{"name": "s", "type": "LongType"}],
        "valueFields": [{"name": "v", "type": "StringType"}],
    }
)
# On a busy machine a session of its own takes most of a minute to start.
PATIENCE_SECONDS = 240


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    make_instance(tmp_path / "instance", "test")
    opened = open_instance(tmp_path / "instance")
    create_table(opened, "t", SCHEMA, {BULK_IMPORT_LEAVES_MIN.name: "8"})
    yield opened
    opened.close()


def write(folder: Path, rows: int, files: int = 4) -> Path:
    folder.mkdir()
    each = rows // files
    for number in range(files):
        s = range(number * each, (number + 1) * each)
        keys = [f"{i * 7919 % 99_991:06d}" for i in s]
        columns = {"v": [f"value {i}" for i in s], "s": list(s), "k": keys}
        pq.write_table(pa.table(columns), folder / f"{number}.parquet", row_group_size=20_000)
    return folder


def stored(instance: Instance) -> pa.Table:
    """All rows of the files that are committed, each looked at by itself."""
    store = instance.table("t").state
    with store.reading() as state:
        leaves = {leaf.id: leaf.region for leaf in state.partitions.leaves()}
        found = []
        for reference in state.files.references():
            rows = pq.read_table(instance.root.url_of(reference.path))
            keys = rows.column("k")
            ends = pc.min_max(keys).as_py()
            assert leaves[reference.partition_id].contains_bounds((ends["min"],), (ends["max"],))
            assert rows.equals(rows.sort_by([("k", "ascending"), ("s", "ascending")]))
            found.append(rows)
    return pa.concat_tables(found).sort_by("s")


def check_stored_once(instance: Instance, rows: int) -> None:
    found = stored(instance)
    assert found.column("s").to_pylist() == list(range(rows))
    assert found.column("v").to_pylist() == [f"value {i}" for i in range(rows)]


def test_rows_are_stored_once_in_leaves_made_for_them(
    spark: SparkSession, instance: Instance, tmp_path: Path
) -> None:
    source = write(tmp_path / "in", 100_000)
    result = bulk_import_paths(instance, "t", [str(source)], lambda: SparkCluster(spark), "j")
    assert (result.rows, result.number) == (100_000, 3)
    check_stored_once(instance, 100_000)
    with instance.table("t").state.reading() as state:
        assert len(list(state.partitions.leaves())) == 8
    again = bulk_import_paths(instance, "t", [str(source)], lambda: SparkCluster(spark), "j")
    assert again.done_before
    (job,) = instance.jobs.recent(JobKind.BULK_IMPORT)
    assert (job.state, job.inputs, len(job.runs)) == (JobState.COMMITTED, 1, 2)
    assert {run.rows_written for run in job.runs} == {100_000, None}


def test_a_row_that_does_not_fit_is_named_by_whoever_reads_it(
    spark: SparkSession, instance: Instance, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("k,s,v\na,1,x\nb,two,y\n")
    pq.write_table(
        pa.table({"k": ["a", "b"], "s": [1, 2], "v": ["x", None]}), tmp_path / "a.parquet"
    )
    for name, said in (("a.csv", "row 2: field 's'"), ("a.parquet", "row 2: field 'v'")):
        with pytest.raises(InvalidRequestError, match=said):
            bulk_import_paths(instance, "t", [str(tmp_path / name)], lambda: SparkCluster(spark))
    jobs = instance.jobs.recent(JobKind.BULK_IMPORT)
    assert [job.state for job in jobs] == [JobState.REJECTED] * 2
    assert "a.csv" in " ".join(reason for job in jobs for reason in job.reasons)


def test_what_spark_itself_says_is_no_reason_to_reject(spark: SparkSession) -> None:
    with pytest.raises(UnavailableError, match="Spark gave up"), task_errors():
        spark.sql("SELECT * FROM nowhere").collect()


def driver(instance: Instance, source: Path, master: str) -> subprocess.Popen[str]:
    program = "from sleeper.cli.main import main; main()"
    command = [sys.executable, "-c", program, "--instance", instance.where]
    command += ["bulk-import", "t", str(source), "--job-id", "j", "--master", master]
    home = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "PYSPARK_PYTHON": sys.executable}
    return subprocess.Popen(
        command, env=os.environ | home, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for_data_files(instance: Instance, running: subprocess.Popen[str]) -> None:
    folder = Path(instance.where) / instance.tables.by_name("t").id
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not list(folder.rglob("*.parquet")):
        assert running.poll() is None, running.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def finish(running: subprocess.Popen[str]) -> str:
    said = running.communicate(timeout=PATIENCE_SECONDS)[1]
    assert running.returncode == 0, said
    return said


def command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has ended
        return ""


@pytest.mark.slow
@pytest.mark.timeout(3 * PATIENCE_SECONDS)
def test_a_killed_driver_that_is_started_again_leaves_no_doubled_row(
    instance: Instance, tmp_path: Path
) -> None:
    source = write(tmp_path / "in", 400_000)
    first = driver(instance, source, "local[1]")
    wait_for_data_files(instance, first)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    store = instance.table("t").state
    with store.reading() as state:
        assert state.files.totals().rows == 0
    assert "400,000 rows" in finish(driver(instance, source, "local[1]"))
    check_stored_once(instance, 400_000)
    assert "was done before" in finish(driver(instance, source, "local[1]"))
    (job,) = instance.jobs.recent(JobKind.BULK_IMPORT)
    assert job.state is JobState.COMMITTED


@pytest.mark.slow
@pytest.mark.timeout(3 * PATIENCE_SECONDS)
def test_a_killed_executor_is_replaced_and_leaves_no_doubled_row(
    instance: Instance, tmp_path: Path
) -> None:
    source = write(tmp_path / "in", 400_000)
    running = driver(instance, source, "local-cluster[2,1,1024]")
    wait_for_data_files(instance, running)
    executors = [
        child
        for child in psutil.Process(running.pid).children(recursive=True)
        if "CoarseGrainedExecutorBackend" in command_of(child)
    ]
    assert len(executors) == 2
    executors[0].kill()
    assert "400,000 rows" in finish(running)
    check_stored_once(instance, 400_000)


@pytest.mark.slow
@pytest.mark.timeout(3 * PATIENCE_SECONDS)
def test_a_submitted_driver_runs_the_job_of_a_message(instance: Instance, tmp_path: Path) -> None:
    source = write(tmp_path / "in", 1000, files=1)
    job = {"id": "j", "tableName": "t", "files": [str(source)], "sparkConf": {}}
    (tmp_path / "job.json").write_text(json.dumps(job))

    def submit(job: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "sleeper.spark.bulk_import_job", instance.where, job]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        return ended.returncode, ended.stderr

    code, said = submit(str(tmp_path / "job.json"))
    assert (code, "bulk import job j: 1,000 rows" in said) == (0, True), said
    check_stored_once(instance, 1000)
    code, said = submit(json.dumps(job))
    assert (code, "bulk import job j: done before" in said) == (0, True), said
    code, said = submit('{"tableName":"t","files":["x"]}')
    assert (code, said.strip()) == (1, 'error: the bulk import job has no "id"')
