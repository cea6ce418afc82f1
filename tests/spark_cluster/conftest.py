"""One cluster of Spark for the tests of this folder, and an instance on AWS's services."""

import io
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.bulk_export.properties import BULK_EXPORT_BUCKET
from sleeper.properties.deployed import BULK_IMPORT_BUCKET
from sleeper.properties.table import BULK_IMPORT_LEAF_BYTES_MIN, BULK_IMPORT_LEAVES_MIN
from tests.servers.aws_instance import AwsInstance, AwsServers, aws_instance
from tests.servers.postgres import TLS_NAME
from tests.spark_cluster.cluster import Cluster, running_cluster
from tests.spark_cluster.installation import install_wheel
from tests.spark_cluster.machines import Network, NoMachinesError, joined_machines
from tests.spark_cluster.program import ROWS, SCHEMA, make_rows

_FILES = 4
DIVIDED = {BULK_IMPORT_LEAVES_MIN.name: "4", BULK_IMPORT_LEAF_BYTES_MIN.name: "0"}
"""Properties of a table that imports divide into four leaves."""


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder that all machines see."""
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="package")
def network(folder: Path) -> Iterator[Network]:
    """Three machines."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17: `make install` says how to get it")
    try:
        with joined_machines(["driver", "worker-1", "worker-2"], TLS_NAME, folder) as joined:
            yield joined
    except NoMachinesError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="package")
def aws(folder: Path, aws_servers: AwsServers) -> Iterator[AwsInstance]:
    """An instance, with the rows of programs as Parquet files in its source bucket."""
    buckets = {p.name: f"made-{uuid.uuid4().hex}" for p in (BULK_EXPORT_BUCKET, BULK_IMPORT_BUCKET)}
    with aws_instance(aws_servers, folder, buckets) as made:
        for bucket in buckets.values():
            made.s3().create_bucket(Bucket=bucket)
        for number in range(_FILES):
            file = io.BytesIO()
            pq.write_table(make_rows(range(number, ROWS, _FILES)), file)
            key = f"rows/{number}.parquet"
            made.s3().put_object(Bucket=made.source_bucket, Key=key, Body=file.getvalue())
        yield made


@pytest.fixture(scope="package")
def instance(aws: AwsInstance) -> Iterator[sleeper.Instance]:
    """The instance as this process sees it."""
    with sleeper.open_instance(aws.where) as opened:
        for name in ("written", "imported", "copied"):
            opened.create_table(name, SCHEMA, DIVIDED)
        yield opened


@pytest.fixture(scope="package")
def cluster(network: Network, aws: AwsInstance, folder: Path) -> Iterator[Cluster]:
    """The cluster. Its Pythons have the wheel."""
    with running_cluster(network, install_wheel(folder), aws, folder) as running:
        yield running
