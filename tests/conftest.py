"""Servers that tests share: started when the first test needs them, ended with the run."""

import gc
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from sleeper.query.hold import VersionHold
from sleeper.retries import RETRY_VARIABLE
from sleeper.storage.bucket import Bucket
from tests import seeds
from tests.child_processes import VARIABLE as PYTHON_PATH
from tests.child_processes import python_path
from tests.folders import use_memory
from tests.servers.aws_instance import AwsServers
from tests.servers.dynoxide import DynamoServer, dynoxide
from tests.servers.mariadb import MariaDB, find_mariadb, mariadb
from tests.servers.ministack import Ministack, ministack
from tests.servers.postgres import Postgres, find_postgres, postgres
from tests.servers.redis import RedisServer, redis_server
from tests.servers.redis import is_installed as is_redis_installed
from tests.servers.seaweedfs import S3Server, seaweedfs
from tests.spark.java import set_java_options

pytest_plugins = ["tests.durations", "tests.disk_errors"]

DATA_BUCKET = "table-data"
SOURCE_BUCKET = "brought-along"

# For all processes of the tests: servers of a busy machine may not answer for seconds.
os.environ.setdefault(RETRY_VARIABLE, "20")

# Processes that a shell starts in the background ignore SIGINT, and so do theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

set_java_options()
use_memory()

settings.register_profile("sleeper", deadline=None, derandomize=seeds.is_fixed())
settings.load_profile("sleeper")


# Collected tests and modules stay, so each garbage collection would walk through them in vain.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exempts tests and modules from garbage collections: thousands of objects that stay."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Leaves the objects to the interpreter, which frees them at exit, after pytest's collections.

    Cleanups run in reverse order, and that of pytest is added later.
    """
    config.add_cleanup(gc.unfreeze)


@pytest.fixture(scope="session", autouse=True)
def _hides_pandas() -> Iterator[None]:
    """Hides pandas from processes that tests start."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(PYTHON_PATH, python_path(os.environ.get(PYTHON_PATH, "")))
        yield


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server with two buckets."""
    with seaweedfs(tmp_path_factory.mktemp("s3"), (DATA_BUCKET, SOURCE_BUCKET)) as server:
        yield server


@pytest.fixture
def data_bucket(s3_server: S3Server) -> Bucket:
    """Returns a bucket prefix of one test."""
    return s3_server.bucket(DATA_BUCKET, f"test-{uuid.uuid4().hex}")


@pytest.fixture
def source_bucket(s3_server: S3Server) -> Bucket:
    """Another bucket, shared by all tests."""
    return s3_server.bucket(SOURCE_BUCKET)


@pytest.fixture(scope="session")
def dynamo_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoServer]:
    """A real DynamoDB server."""
    with dynoxide(tmp_path_factory.mktemp("dynamo")) as server:
        yield server


@pytest.fixture(scope="session")
def ministack_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ministack]:
    """An emulator of AWS, one per worker."""
    with ministack(tmp_path_factory.mktemp("ministack")) as server:
        yield server


@pytest.fixture(scope="session")
def aws_servers(
    s3_server: S3Server, dynamo_server: DynamoServer, ministack_server: Ministack
) -> AwsServers:
    """Returns the servers of an AWS instance."""
    return AwsServers(s3_server, dynamo_server, ministack_server)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A real PostgreSQL server."""
    if find_postgres("postgres") is None:
        pytest.skip("PostgreSQL is not installed")
    with postgres() as server:
        yield server


@pytest.fixture
def postgres_database(postgres_server: Postgres) -> Postgres:
    """Returns an empty database of one test."""
    return postgres_server.make_database()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A real Redis server of one test."""
    if not is_redis_installed():
        pytest.skip("Redis is not installed")
    with redis_server(tmp_path) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDB]:
    """A real MariaDB server."""
    if find_mariadb("mariadbd") is None:
        pytest.skip("MariaDB is not installed")
    with mariadb() as server:
        yield server


@pytest.fixture
def mariadb_database(mariadb_server: MariaDB) -> MariaDB:
    """Returns an empty database of one test."""
    return mariadb_server.make_database()


@pytest.fixture
def holds_of_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives each read a hold of its own, where a test's clock does not move the floor's thread."""
    monkeypatch.setattr(VersionHold, "under_floor_seconds", 0.0)
