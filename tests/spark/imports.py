"""Bulk imports in separate processes, and checks of the table after them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark

from sleeper.admin.tables import create_table
from sleeper.instance import Instance
from sleeper.opening import create_instance, open_instance
from sleeper.properties.table import BULK_IMPORT_LEAF_BYTES_MIN, BULK_IMPORT_LEAVES_MIN
from tests.spark.java import VARIABLE as JAVA_OPTIONS
from tests.spark.processes import kill_family
from tests.spark.session import preloading

SCHEMA = json.dumps(
    {
        "rowKeyFields": [{"name": "k", "type": "StringType"}],
        "sortKeyFields": [{"name": "s", "type": "LongType"}],
        "valueFields": [{"name": "v", "type": "StringType"}],
    }
)
# On a busy machine a session of its own takes most of a minute to start.
PATIENCE_SECONDS = 240


@contextmanager
def instance_to_import_into(
    folder: Path, values: Mapping[str, str] | None = None
) -> Iterator[Instance]:
    """An instance with a table `t`, which imports split into eight leaves."""
    create_instance(folder, "test", values)
    instance = open_instance(folder)
    properties = {BULK_IMPORT_LEAVES_MIN.name: "8", BULK_IMPORT_LEAF_BYTES_MIN.name: "0"}
    create_table(instance, "t", SCHEMA, properties)
    yield instance
    instance.close()


def write(folder: Path, rows: int, files: int = 4) -> Path:
    """Rows of the numbers from 0, in a folder of Parquet files; their keys in no order."""
    folder.mkdir()
    rows_per_file = rows // files
    for number in range(files):
        s = range(number * rows_per_file, (number + 1) * rows_per_file)
        keys = [f"{i * 7919 % 99_991:06d}" for i in s]
        columns = {"v": [f"value {i}" for i in s], "s": list(s), "k": keys}
        pq.write_table(pa.table(columns), folder / f"{number}.parquet", row_group_size=20_000)
    return folder


def read_rows(instance: Instance) -> pa.Table:
    """Returns the rows of the files of table `t`, each file read separately."""
    store = instance.table("t").state
    with store.reading() as state:
        leaves = {leaf.id: leaf.region for leaf in state.partitions.leaves()}
        results = []
        for reference in state.files.references():
            rows = pq.read_table(instance.storage.root.url_of(reference.path))
            keys = rows.column("k")
            ends = pc.min_max(keys).as_py()
            assert leaves[reference.partition_id].contains_bounds((ends["min"],), (ends["max"],))
            assert rows.equals(rows.sort_by([("k", "ascending"), ("s", "ascending")]))
            results.append(rows)
    return pa.concat_tables(results).sort_by("s")


def check_stored(instance: Instance, rows: int, times: int = 1) -> None:
    """The rows of `write`, each of them so many times."""
    result = read_rows(instance)
    assert result.column("s").to_pylist() == [s for s in range(rows) for _ in range(times)]
    assert result.column("v").to_pylist() == [f"value {s}" for s in result.column("s").to_pylist()]


def stored_rows(instance: Instance) -> int:
    """How many rows the table `t` has by its state."""
    with instance.table("t").state.reading() as state:
        return state.files.totals().rows


def data_files(instance: Instance) -> set[Path]:
    """Those of table `t` on disk, committed or not."""
    return set((Path(instance.where) / instance.table("t").ref.id).rglob("data/**/*.parquet"))


class Import:
    """A `sleeper bulk-import` into table `t`, in a process group of its own."""

    def __init__(
        self, instance: Instance, source: Path, master: str, job_id: str = "j", *options: str
    ) -> None:
        program = "from sleeper.cli.main import main; main()"
        command = [sys.executable, "-c", program, "--instance", instance.where]
        command += ["bulk-import", "t", str(source), "--job-id", job_id, "--master", master]
        command += options
        home = {
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "PYSPARK_PYTHON": sys.executable,
            # Executors in processes of their own do not get the options of the driver.
            "JDK_JAVA_OPTIONS": os.environ[JAVA_OPTIONS],
        }
        self.process = subprocess.Popen(
            command,
            env=preloading(os.environ | home),
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._instance = instance
        self._files_before = data_files(instance)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Until that holds, or the process has ended."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.has_ended and not condition():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def wait_for_data_files(self) -> None:
        """Waits until the import has written its first file."""
        self.wait_until(lambda: data_files(self._instance) - self._files_before)

    def kill(self) -> None:
        """With everything that it started."""
        kill_family(self.pid)
        self.process.communicate()

    def end(self, status: int = 0) -> str:
        """Waits until the process ends with that status; returns its error output."""
        output = self.process.communicate(timeout=PATIENCE_SECONDS)[1]
        assert self.process.returncode == status, output
        return output
