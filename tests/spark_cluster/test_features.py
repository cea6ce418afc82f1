"""Everything that Spark does with tables, on a cluster: equal to the model by every column."""

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.adapters.definition import Adapter, DatabaseSource, Engine, TableSink
from sleeper.adapters.store import AdapterStore
from sleeper.bulk_export.service import run_bulk_export_message
from sleeper.databases.url import split_user
from sleeper.jobs.queue import Message
from tests.servers.aws_instance import AwsInstance
from tests.servers.postgres import TLS_NAME, Postgres
from tests.servers.relay import relay
from tests.spark.imports import PATIENCE_SECONDS
from tests.spark_cluster.cluster import Cluster
from tests.spark_cluster.machines import ROOT
from tests.spark_cluster.program import (
    ACCOUNTS,
    DELETED,
    LAST_KEY,
    ROWS,
    make_digest,
    make_key,
    make_rows,
)

pytestmark = pytest.mark.timeout(3 * PATIENCE_SECONDS)

Steps = dict[str, dict[str, Any]]

_COUNTRIES = [None if n % 7 == 0 else f"country {n}" for n in range(900)]
_REMAINING = [n for n in range(ROWS) if n not in DELETED and make_key(n) < LAST_KEY]


@pytest.fixture(scope="module")
def steps(cluster: Cluster, instance: sleeper.Instance, postgres_server: Postgres) -> Steps:
    """Runs the program of all steps."""
    accounts = instance.create_table("accounts", ACCOUNTS)
    accounts.ingest(pa.table({"id": [*range(900)], "country": _COUNTRIES}))
    database = postgres_server.make_database()
    database.run(
        "CREATE TABLE orders AS SELECT n AS id, 'country ' || n AS country "
        f"FROM generate_series(0, {ROWS - 1}) AS n"
    )
    instance.create_table("orders", ACCOUNTS)
    with relay(cluster.network.address, database.port) as port:
        url, user = split_user(database.url.replace("127.0.0.1", TLS_NAME))
        url = url.replace(str(database.port), str(port))
        source = DatabaseSource(
            f"{url}?sslmode=verify-full&sslrootcert={database.certificate}",
            table="orders",
            user=user,
            password="env:SHOP_PASSWORD",
            engine=Engine.SPARK,
            partition_column="id",
            partitions=4,
        )
        store = AdapterStore(instance._ports.storage.root)
        store.create(Adapter("shop", source, TableSink("orders")))
        driver = cluster.start_program(
            "features", name="features", variables={"SHOP_PASSWORD": database.password}
        )
        errors = driver.end()
    found = driver.steps()
    assert found, errors
    return found


def test_a_driver_and_executors_have_the_wheel_and_not_the_repository(
    cluster: Cluster, steps: Steps
) -> None:
    seen = steps["look_around"]["seen"]
    assert {each["host"] for each in seen} == {"worker-1", "worker-2"}
    assert {each["repository"] for each in seen} == {"None"}
    (package,) = {each["package"] for each in seen}
    assert package.startswith(f"{cluster.folder}/installed/lib/")
    for machine in cluster.network.machines:
        assert machine.run(f"ls -A {ROOT}").split() in ([], [".venv"])


@pytest.mark.parametrize(
    "step", ["write", "write again", "read_table", "bulk_import", "stream", "stash"]
)
def test_a_step_has_all_rows(steps: Steps, step: str) -> None:
    assert steps[step] == make_digest(make_rows(range(ROWS)))


def test_deletes_leave_the_other_rows(steps: Steps, instance: sleeper.Instance) -> None:
    expected = make_digest(make_rows(_REMAINING))
    assert steps["delete"] == expected
    assert make_digest(instance.table("copied").query().to_arrow()) == expected


def test_changes_have_each_insert_and_delete_once(steps: Steps) -> None:
    count = len(DELETED)
    inserts = make_rows(range(ROWS)).append_column("min", pa.nulls(ROWS, pa.string()))
    deletes = pa.table({"k": [*map(make_key, DELETED), None], "min": [None] * count + [LAST_KEY]})
    operations = ["insert"] * ROWS + ["delete"] * count + ["delete_region"]
    changes = pa.concat_tables([inserts, deletes], promote_options="default")
    expected = changes.append_column("operation", pa.array(operations))
    assert steps["changes"] == make_digest(expected)


def test_lookups_add_values(steps: Steps) -> None:
    countries = [*_COUNTRIES, *[None] * 100]
    rows = pa.table({"account": [*range(1_000)], "country": countries})
    assert steps["enrich"] == make_digest(rows)


def test_a_load_has_the_rows_of_the_database(steps: Steps, instance: sleeper.Instance) -> None:
    ids = [*range(ROWS)]
    expected = make_digest(pa.table({"id": ids, "country": [f"country {n}" for n in ids]}))
    assert steps["load_database"] == expected
    assert make_digest(instance.table("orders").query().to_arrow()) == expected


def test_an_export_has_the_rows_of_a_write(
    steps: Steps, aws: AwsInstance, instance: sleeper.Instance
) -> None:
    ports = instance._ports
    body = json.dumps({"exportId": "e", "tableName": "written"})
    result = run_bulk_export_message(ports, Message("m", body, "", 1, ports.clock()))
    bucket, _, prefix = result.location.removeprefix("s3://").partition("/")
    objects = aws.s3().list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/")["Contents"]
    files = [each["Key"] for each in objects if each["Key"].endswith(".parquet")]
    contents = [aws.s3().get_object(Bucket=bucket, Key=key)["Body"].read() for key in files]
    rows = pa.concat_tables([pq.read_table(io.BytesIO(content)) for content in contents])
    assert make_digest(rows) == make_digest(make_rows(range(ROWS)))
