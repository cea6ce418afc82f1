"""A lookup loads neither DataFusion nor pandas, which take longer than the rest of a process."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from sleeper.admin.tables import create_table
from sleeper.ingest.service import ingest_rows
from sleeper.local.instance import create_local_instance, open_local_instance

CORE = Path(__file__).parents[3] / "core"
SCHEMA = """{"rowKeyFields":[{"name":"k","type":"%s"}],
 "valueFields":[{"name":"v","type":"LongType"}]}"""
KINDS = {"IntType": pa.int32(), "StringType": pa.string()}
PROGRAM = """
import io, json, sys
from pathlib import Path
from sleeper.local.instance import open_local_instance
from sleeper.query.request import Query, make_key_regions
from sleeper.query.rows.output import ROW_OUTPUTS
from sleeper.query.service import open_query, read_schema

instance = open_local_instance(Path(sys.argv[1]))
for name, keys in json.loads(sys.argv[2]):
    regions = make_key_regions(read_schema(instance, name), [(key,) for key in keys])
    for output, each in (("csv", regions), ("json", tuple(regions))):
        with open_query(instance, name, Query(each)) as rows:
            print(name, ROW_OUTPUTS[output](rows.schema, rows, io.BytesIO()))
print(*{"datafusion", "pandas", "boto3", "pyspark", "deltalake"} & set(sys.modules))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables with integer and text keys 0 to 99, each in two files that overlap."""
    folder = tmp_path_factory.mktemp("light") / "instance"
    create_local_instance(folder, "test")
    with contextlib.closing(open_local_instance(folder)) as instance:
        for name, kind in KINDS.items():
            create_table(instance, name, SCHEMA % name)
            for start in (0, 1):
                keys = pa.array(range(start, 100, 2), pa.int32())
                rows = {"k": keys.cast(kind), "v": list(range(len(keys)))}
                ingest_rows(instance, name, [pa.record_batch(rows)])
    return folder


def test_keys_are_found_without_the_engine(folder: Path) -> None:
    questions = [
        (name, [key(each) for each in keys])
        for name, key in (("IntType", int), ("StringType", str))
        for keys in ([5], [1000], [4, 5, 6, 7, 1000], list(range(40)))
    ]
    arguments = [str(folder), json.dumps(questions)]
    command = [sys.executable, "-c", PROGRAM, *arguments]
    # Not the tests' own start-up, which hides pandas.
    environment = {"PYTHONPATH": str(CORE)}
    process = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    answer = process.stdout
    *found, loaded = answer.split("\n")[:-1]
    rows = [n for n in (1, 0, 4, 40) for _ in range(2)]
    assert found == [f"{name} {n}" for name in KINDS for n in rows]
    assert loaded == ""
