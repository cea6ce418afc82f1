"""The implementations that the suites test, with direct access to their stores."""

import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import boto3
import pytest
from moto import mock_aws
from obstore.store import LocalStore

from sleeper.aws.file_requests import DynamoFileRequests
from sleeper.aws.query_tracker import DynamoQueryTracker
from sleeper.aws.tables import DynamoTableIndex, TableIndexNames
from sleeper.aws.trackers import DynamoJobTracker, DynamoTaskTracker
from sleeper.export_queue.aws.store import DynamoExportStore
from sleeper.export_queue.local.store import EXPORTS_FILE, LocalExportStore
from sleeper.export_queue.properties import EXPORT_QUEUES_TABLE
from sleeper.export_queue.store import ExportStore
from sleeper.jobs.file_requests import FileRequests
from sleeper.jobs.query_tracker import QueryRecords
from sleeper.jobs.queue import DeadLetters, MessageQueue, QueueSettings
from sleeper.jobs.tracker import JobTracker, TaskTracker
from sleeper.local.database import InstanceDatabase
from sleeper.local.file_requests import LocalFileRequests
from sleeper.local.folder import InstanceFolder, create_instance_folder
from sleeper.local.query_tracker import LocalQueryTracker
from sleeper.local.queue import LocalDeadLetters, LocalQueue
from sleeper.local.table_index import LocalTableIndex
from sleeper.local.trackers import LocalJobTracker, LocalTaskTracker
from sleeper.properties.deployed import (
    INGEST_BATCHER_TABLE,
    JOB_TRACKER_TABLE,
    QUERY_TRACKER_TABLE,
    TABLE_ID_INDEX,
    TABLE_NAME_INDEX,
    TABLE_ONLINE_INDEX,
    TASK_TRACKER_TABLE,
)
from sleeper.storage.bucket import Bucket
from sleeper.tables import TableIndex
from tests.clock import FakeClock
from tests.contracts.simulated_services import (
    simulated_queues,
    simulated_services,
    simulated_tables,
)
from tests.contracts.sqs_queues import (
    SqsServer,
    ministack_queues,
    moto_server,
    sqs_dead_letters,
    sqs_queue,
)
from tests.servers.dynoxide import DynamoServer, DynamoTables, make_tables

T = TypeVar("T")


@pytest.fixture
def simulated_bucket(tmp_path: Path) -> Iterator[Bucket]:
    """Returns a prefix of a bucket of the simulated S3."""
    services = simulated_services(tmp_path / "objects")
    services.s3.create("data")
    with services.install():
        yield Bucket("data", "a/prefix")


@dataclass
class Store(Generic[T]):
    """An implementation of a port; `again` opens a second one, as another process does."""

    port: T
    again: Callable[[], T]
    list_stored: Callable[[], list[tuple[object, ...]]]
    clock: FakeClock = field(default_factory=FakeClock)


@pytest.fixture
def parallel_server(request: pytest.FixtureRequest) -> None:
    """Skips a test with several threads on moto, which is not safe for threads."""
    if "moto" in request.node.name:
        pytest.skip("moto is not safe for threads")


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[InstanceFolder]:
    created = create_instance_folder(tmp_path / "instance", "test")
    yield created
    created.close()


@pytest.fixture
def open_database(instance: InstanceFolder) -> Iterator[Callable[[], InstanceDatabase]]:
    """Opens another connection to the instance's database."""
    databases: list[InstanceDatabase] = []

    def open_again() -> InstanceDatabase:
        databases.append(InstanceDatabase(instance.database.path))
        return databases[-1]

    yield open_again
    for database in databases:
        database.close()


@pytest.fixture
def read_rows(instance: InstanceFolder) -> Callable[[str], list[tuple[object, ...]]]:
    """Reads with a connection that no adapter uses."""

    def read(sql: str) -> list[tuple[object, ...]]:
        connection = sqlite3.connect(instance.database.path)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    return read


Rows = Callable[[str], list[tuple[object, ...]]]
OpenDatabase = Callable[[], InstanceDatabase]


@pytest.fixture(params=["local", "dynoxide", "moto", "simulated"])
def index(request: pytest.FixtureRequest) -> Iterator[Store[TableIndex]]:
    if request.param != "local":
        with dynamo_tables(request) as tables:
            yield _dynamo_index(tables)
        return
    open_database, read_rows = _local(request)
    yield Store(
        port=LocalTableIndex(open_database()),
        again=lambda: LocalTableIndex(open_database()),
        list_stored=lambda: read_rows("SELECT id, name, state FROM tables ORDER BY id"),
    )


@pytest.fixture(params=["local", "dynoxide", "moto", "simulated"])
def job_tracker(request: pytest.FixtureRequest) -> Iterator[Store[JobTracker]]:
    if request.param != "local":
        with dynamo_tables(request) as tables:
            name = tables.name(JOB_TRACKER_TABLE)
            yield Store(
                port=DynamoJobTracker(tables.client, name, 30),
                again=lambda: DynamoJobTracker(tables.another_client(), name, 30),
                list_stored=lambda: tables.rows(JOB_TRACKER_TABLE, "jobId", "runId", "step"),
            )
        return
    open_database, read_rows = _local(request)
    yield Store(
        port=LocalJobTracker(open_database()),
        again=lambda: LocalJobTracker(open_database()),
        list_stored=lambda: read_rows(
            "SELECT job_id, run_id, step FROM job_events ORDER BY 1, 2, 3"
        ),
    )


@pytest.fixture(params=["local", "dynoxide", "moto", "simulated"])
def task_tracker(request: pytest.FixtureRequest) -> Iterator[Store[TaskTracker]]:
    if request.param != "local":
        with dynamo_tables(request) as tables:
            name = tables.name(TASK_TRACKER_TABLE)
            yield Store(
                port=DynamoTaskTracker(tables.client, name, 30),
                again=lambda: DynamoTaskTracker(tables.another_client(), name, 30),
                list_stored=lambda: tables.rows(TASK_TRACKER_TABLE, "task", "event"),
            )
        return
    open_database, read_rows = _local(request)
    yield Store(
        port=LocalTaskTracker(open_database()),
        again=lambda: LocalTaskTracker(open_database()),
        list_stored=lambda: read_rows("SELECT task_id, step FROM task_events ORDER BY 1, 2"),
    )


@pytest.fixture(params=["local", "dynoxide", "moto", "simulated"])
def query_tracker(request: pytest.FixtureRequest) -> Iterator[Store[QueryRecords]]:
    clock = FakeClock()
    if request.param != "local":
        with dynamo_tables(request) as tables:
            name = tables.name(QUERY_TRACKER_TABLE)
            yield Store(
                port=DynamoQueryTracker(tables.client, name, 1, clock),
                again=lambda: DynamoQueryTracker(tables.another_client(), name, 1, clock),
                list_stored=lambda: tables.rows(
                    QUERY_TRACKER_TABLE, "queryId", "subQueryId", "lastKnownState"
                ),
                clock=clock,
            )
        return
    open_database, read_rows = _local(request)
    yield Store(
        port=LocalQueryTracker(open_database(), clock),
        again=lambda: LocalQueryTracker(open_database(), clock),
        list_stored=lambda: read_rows(
            "SELECT query_id, '-', state FROM queries UNION ALL"
            " SELECT query_id, sub_query_id, state FROM subqueries ORDER BY 1, 2"
        ),
        clock=clock,
    )


@pytest.fixture(params=["local", "dynoxide", "moto", "simulated"])
def file_requests(request: pytest.FixtureRequest) -> Iterator[Store[FileRequests]]:
    if request.param != "local":
        with dynamo_tables(request) as tables:
            name = tables.name(INGEST_BATCHER_TABLE)
            yield Store(
                port=DynamoFileRequests(tables.client, name),
                again=lambda: DynamoFileRequests(tables.another_client(), name),
                list_stored=lambda: tables.rows(
                    INGEST_BATCHER_TABLE, "tableId", "requestId", "path"
                ),
            )
        return
    open_database, read_rows = _local(request)
    yield Store(
        port=LocalFileRequests(open_database()),
        again=lambda: LocalFileRequests(open_database()),
        list_stored=lambda: read_rows("SELECT table_id, id, path FROM file_requests ORDER BY 1, 2"),
    )


@pytest.fixture(params=["local", "dynoxide", "simulated"])
def export_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store[ExportStore]]:
    """The storage of export queues. It uses threads on DynamoDB, for which moto is not safe."""
    clock = FakeClock()
    if request.param == "local":
        file = tmp_path / EXPORTS_FILE
        yield Store(
            port=LocalExportStore(file, clock),
            again=lambda: LocalExportStore(file, clock),
            list_stored=lambda: _stored_exports(file),
            clock=clock,
        )
        return
    with dynamo_tables(request) as tables:
        name, objects = tables.name(EXPORT_QUEUES_TABLE), LocalStore(tmp_path, mkdir=True)
        yield Store(
            port=DynamoExportStore(tables.client, name, objects, clock),
            again=lambda: DynamoExportStore(tables.another_client(), name, objects, clock),
            list_stored=lambda: [
                *tables.rows(EXPORT_QUEUES_TABLE, "queue", "item"),
                *((str(path),) for path in tmp_path.rglob("*") if path.is_file()),
            ],
            clock=clock,
        )


def _stored_exports(file: Path) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(file)
    try:
        return [
            row
            for table in ("queues", "items", "buckets", "dead_letters")
            for row in connection.execute(f"SELECT * FROM {table}")
        ]
    finally:
        connection.close()


def _local(request: pytest.FixtureRequest) -> tuple[OpenDatabase, Rows]:
    return request.getfixturevalue("open_database"), request.getfixturevalue("read_rows")


@contextmanager
def dynamo_tables(request: pytest.FixtureRequest) -> Iterator[DynamoTables]:
    """A server, moto or the simulated service: independent implementations of DynamoDB."""
    if request.param == "simulated":
        yield simulated_tables()
        return
    if request.param == "dynoxide":
        server: DynamoServer = request.getfixturevalue("dynamo_server")
        yield server.make_tables()
        return
    with mock_aws():
        client = boto3.client("dynamodb", region_name="eu-west-2")
        yield DynamoTables(client, make_tables(client, uuid.uuid4().hex[:8]), lambda: client)


def _dynamo_index(tables: DynamoTables) -> Store[TableIndex]:
    names = TableIndexNames(
        tables.name(TABLE_NAME_INDEX), tables.name(TABLE_ID_INDEX), tables.name(TABLE_ONLINE_INDEX)
    )

    def list_stored() -> list[tuple[object, ...]]:
        rows = tables.rows(TABLE_ID_INDEX, "TableId", "TableName", "State")
        return [(table_id, name, state or "active") for table_id, name, state in rows]

    return Store(
        port=DynamoTableIndex(tables.client, names),
        again=lambda: DynamoTableIndex(tables.another_client(), names),
        list_stored=list_stored,
    )


SETTINGS = QueueSettings(visibility_timeout_seconds=30, receives_max=3)
FIFO_SETTINGS = QueueSettings(visibility_timeout_seconds=30, receives_max=3, fifo=True)


@dataclass
class Queues:
    """A standard and a FIFO queue on one clock."""

    clock: Any
    plain: MessageQueue
    fifo: MessageQueue
    plain_dead: DeadLetters
    fifo_dead: DeadLetters
    again: Callable[[], MessageQueue]
    list_stored: Callable[[], list[str]]
    server: str = "local"

    @property
    def is_sqs(self) -> bool:
        return self.server != "local"

    def skip_on_moto(self, why: str) -> None:
        if self.server == "moto":
            pytest.skip(f"moto {why}")

    def is_now(self, time_ms: int) -> bool:
        """Returns whether the time is about that of the queues' clock."""
        return abs(time_ms - self.clock()) <= (self.clock.tolerance_ms if self.is_sqs else 0)


@pytest.fixture(params=["local", "moto", "ministack", "simulated"])
def queues(request: pytest.FixtureRequest) -> Iterator[Queues]:
    if request.param == "local":
        open_database, read_rows = (
            request.getfixturevalue(name) for name in ("open_database", "read_rows")
        )
        yield _local_queues(open_database, read_rows)
    elif request.param == "moto":
        with moto_server() as server:
            yield _sqs_queues(server, "moto")
    elif request.param == "simulated":
        yield _sqs_queues(simulated_queues(), "simulated")
    else:
        server = ministack_queues(request.getfixturevalue("ministack_server"))
        yield _sqs_queues(server, "ministack")


def _local_queues(open_database: OpenDatabase, read_rows: Rows) -> Queues:
    clock = FakeClock()
    alive = "SELECT body FROM messages WHERE died_ms IS NULL ORDER BY queue DESC, position"
    return Queues(
        clock=clock,
        plain=LocalQueue(open_database(), "plain", SETTINGS, clock),
        fifo=LocalQueue(open_database(), "fifo", FIFO_SETTINGS, clock),
        plain_dead=LocalDeadLetters(open_database(), "plain", SETTINGS, clock),
        fifo_dead=LocalDeadLetters(open_database(), "fifo", FIFO_SETTINGS, clock),
        again=lambda: LocalQueue(open_database(), "plain", SETTINGS, clock),
        list_stored=lambda: [str(body) for (body,) in read_rows(alive)],
    )


def _sqs_queues(server: SqsServer, name: str) -> Queues:
    client = server.client
    plain, fifo = server.make("plain", SETTINGS), server.make("fifo", FIFO_SETTINGS)
    return Queues(
        clock=server.clock,
        plain=sqs_queue(client, "plain", plain),
        fifo=sqs_queue(client, "fifo", fifo),
        plain_dead=sqs_dead_letters(client, "plain", plain),
        fifo_dead=sqs_dead_letters(client, "fifo", fifo),
        again=lambda: sqs_queue(client, "plain", plain),
        list_stored=lambda: [body for item in (plain, fifo) for body in server.bodies(item.url)],
        server=name,
    )
