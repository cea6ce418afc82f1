"""The life of instances: deployed by a release, upgraded, destroyed, and adopted.

Two instances whose ids begin alike are in one account. The templates, the functions that deploy
them, and the program that writes their rows are those of the last release
(`tests/infra/releases`). The emulator keeps what templates retain, creates nothing twice, and
updates and imports as CloudFormation does (`ministack_nested_stacks`).
"""

import datetime
import decimal
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.opening import open_instance
from tests.infra.record_release import IDS, LIFECYCLE_PARTS, RELEASES, define_lifecycle_folder
from tests.servers.ministack import ACCOUNT, Ministack
from tests.system.aws_user import AwsUser
from tests.system.deployed import DeployedInstance, deploy, destroy, stopwatch, synthesise
from tests.system.launcher import Launcher
from tests.system.recorded_calls import read_recorded
from tests.system.roles import find_refusals
from tools.adopt import RefusedError, check_retained, find_retained

pytestmark = pytest.mark.timeout(600)

LAST_RELEASE = max(RELEASES.glob("*.tar.xz"))
DESTROYED, KEPT = IDS
ADDED = ("StashStack", "ExportQueueStack")
"""Parts that the release lacks. Each has a bucket or table that outlives it."""
OLD_PROGRAM = """
import json, sys
from sleeper.cli.main import app
for command in json.loads(sys.argv[1]):
    app(["--instance", sys.argv[2], *command.split()], standalone_mode=False)
"""
COMMANDS = (
    "ingest rows 0.parquet",
    "follower create rows feed",
    "ingest rows 1.parquet",
    "compact rows --all",
    "snapshot take rows",
    "ingest rows 2.parquet",
    "query rows --format parquet --output newest.parquet",
    "query rows --as-of 2 --format parquet --output older.parquet",
)
"""Leave a follower, a snapshot, a compaction that no task ran, and entries after the snapshot."""
EXPORT_ITEM = {"queue": {"S": "q"}, "item": {"S": "definition"}, "text": {"S": "kept"}}
LASTING = {
    f"sleeper-sales-config-{ACCOUNT}",
    f"sleeper-sales-table-data-{ACCOUNT}",
    f"sleeper-sales-stashes-{ACCOUNT}",
    "sleeper-sales-export-queues",
    "sleeper-sales-ingest-batcher",
    "sleeper-sales-table-index-by-id",
    "sleeper-sales-table-index-by-name",
    "sleeper-sales-table-index-by-online",
    "sleeper-sales-transaction-log",
}
OF_PARTS = {name for name in LASTING if name.endswith(("queues", "batcher", f"stashes-{ACCOUNT}"))}

ROLES = {
    "Compaction/TaskRole",
    "Compaction/TaskStartRole",
    "IngestBatcher/ReceiveRole",
    "Properties/WriteRole",
    "Storage/EmptierRole",
}
"""Some of those that are used."""
_WATCH = re.compile(r"User: \S+:assumed-role/[^/\s]+/sleeper-[a-z-]+-watch-instance ")

Hashes = Mapping[str, str]


@pytest.fixture
def recorded_calls(tmp_path: Path) -> Path:
    """Returns a folder of this test alone, because the roles of the release are here too."""
    return tmp_path


def unpack_release(folder: Path) -> None:
    with tarfile.open(LAST_RELEASE) as archive:
        archive.extractall(folder, filter="data")


def make_rows(instance: str, first: int, count: int) -> pa.Table:
    rows = [
        {
            "k": i * 7 % 1000,
            "at": i,
            "time": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
            + datetime.timedelta(hours=i),
            "name": None if i % 5 == 0 else f"{instance} {i} é",
            "share": i / 3,
            "count": i % 11,
            "flag": i % 2 == 0,
            "day": datetime.date(2026, 1, 1) + datetime.timedelta(days=i),
            "price": decimal.Decimal(i) / 4,
            "bytes": bytes([i % 256, 0, 255]),
            "tags": [f"t{i % 3}"] * (i % 3),
            "counts": [(f"c{j}", j) for j in range(i % 4)],
        }
        for i in range(first, first + count)
    ]
    return pa.Table.from_pylist(rows, ROWS)


ROWS = pa.schema(
    [
        ("k", pa.int64()),
        ("at", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
        ("name", pa.string()),
        ("share", pa.float64()),
        ("count", pa.int32()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("price", pa.decimal128(12, 2)),
        ("bytes", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
    ]
)


def hash_columns(rows: pa.Table) -> Hashes:
    """Returns a hash of the values of each column, in the order of the rows."""
    assert rows.num_rows > 100
    return {
        name: hashlib.sha256(repr(column.to_pylist()).encode()).hexdigest()
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    }


def read_rows(instance: str, version: int | None = None) -> Hashes:
    with closing(open_instance(f"aws:{instance}")) as ports:
        return hash_columns(sleeper.Instance(ports).table("rows").query(as_of=version).to_arrow())


@dataclass
class Lives:
    """The instances, the folder of the test, and the hashes that the release wrote."""

    emulator: Ministack
    folder: Path
    newest: dict[str, Hashes]
    older: dict[str, Hashes]

    def write_with_release(self, code: Path, name: str) -> None:
        """Runs commands of the release, in a process that has nothing of this version."""
        work = self.folder / f"work-{name}"
        work.mkdir()
        for i in range(3):
            pq.write_table(make_rows(name, i * 150, 200), work / f"{i}.parquet")
        program = [sys.executable, "-c", OLD_PROGRAM, json.dumps(COMMANDS), f"aws:{name}"]
        environment = {**os.environ, "PYTHONPATH": str(code)}
        subprocess.run(program, check=True, cwd=work, env=environment)
        self.newest[name] = hash_columns(pq.read_table(work / "newest.parquet"))
        self.older[name] = hash_columns(pq.read_table(work / "older.parquet"))
        self._submit_to_batcher(name)

    def _submit_to_batcher(self, name: str) -> None:
        """Leaves a small file that waits for others."""
        client, bucket = self.emulator.client, f"sleeper-{name}-table-data-{ACCOUNT}"
        client("s3").put_object(Bucket=bucket, Key="for_ingest/1.parquet", Body=b"waits")
        message = {"tableName": "rows", "files": [f"{bucket}/for_ingest/1.parquet"]}
        queue = client("sqs").get_queue_url(QueueName=f"sleeper-{name}-ingest-batcher-submit")
        client("sqs").send_message(QueueUrl=queue["QueueUrl"], MessageBody=json.dumps(message))
        wait_until(lambda: self.items(f"sleeper-{name}-ingest-batcher"))

    def items(self, table: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.emulator.client("dynamodb").scan(TableName=table)[
            "Items"
        ]
        return found

    def synthesise(self, name: str, output: str, *parts: str) -> Path:
        """Returns the templates of this version, with parts of the release and others."""
        folder = self.folder / f"folder-{name}"
        file = define_lifecycle_folder(folder, name, *parts)
        with file.open("a") as text:
            text.write("sleeper.network.interface.endpoints=true\n")
        return synthesise(file, self.folder / output, lambda_platform="code", account=ACCOUNT)

    def check_rows(self) -> None:
        assert {name: read_rows(name) for name in IDS} == self.newest
        assert {name: read_rows(name, version=2) for name in IDS} == self.older

    def run_compaction(self, instance: DeployedInstance, environment: Mapping[str, str]) -> None:
        """Runs the task for the compaction that the release dispatched."""
        user = AwsUser(instance.client, DESTROYED, ACCOUNT, "uploads")
        (self.folder / "tasks").mkdir()
        running = Launcher(instance, environment, self.folder / "tasks")

        def is_committed() -> bool:
            running.look()
            return {job["state"] for job in user.jobs("compaction-jobs").values()} == {"committed"}

        user.until(is_committed, "the compaction is committed", "start-tasks-compaction")
        running.end()


def wait_until(is_so: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_instances_of_a_release_are_upgraded_and_one_is_destroyed_and_adopted(
    emulator: Ministack,
    emulator_environment: dict[str, str],
    tmp_path: Path,
    recorded_calls: Path,
    request: pytest.FixtureRequest,
) -> None:
    client, step = emulator.client, stopwatch()
    lives = Lives(emulator, tmp_path, {}, {})
    unpack_release(tmp_path / "release")
    (code,) = (tmp_path / "release" / KEPT).glob("asset.*")
    for name in IDS:
        deploy(client, tmp_path / "release" / name)
    step("deployed")
    for name in IDS:
        lives.write_with_release(code, name)
    step("written")
    templates = {
        name: lives.synthesise(name, f"out-{name}", *LIFECYCLE_PARTS, *ADDED) for name in IDS
    }
    step("synthesised")
    instances = {name: deploy(client, folder) for name, folder in templates.items()}
    step("upgraded")
    lives.check_rows()
    lives.run_compaction(instances[DESTROYED], emulator_environment)
    lives.check_rows()
    step("compared")
    check_parts(lives, templates[DESTROYED])
    step("parts removed and added")
    check_destruction(lives, instances[DESTROYED], templates)
    step("adopted")
    recorded = read_recorded([recorded_calls / f"{request.node.name}.jsonl"])
    # A run of the watch may count queues while their part is removed, and end after its own role's
    # policy was deleted. Other tests of deployed instances are about what it may do.
    refused = {
        name: role.refused
        for name, role in recorded.items()
        if role.refused and name != "Watch/WatchRole"
    }
    used = {name for name, role in recorded.items() if role.used}
    assert (refused, used >= ROLES) == ({}, True)
    refusals = find_refusals(tmp_path / "emulator")
    assert [line for line in refusals if not _WATCH.search(line)] == []


def check_parts(lives: Lives, templates: Path) -> None:
    """Removes parts and adds them again, which finds what they kept."""
    client = lives.emulator.client
    waiting = lives.items("sleeper-sales-ingest-batcher")
    client("s3").put_object(Bucket=f"sleeper-sales-stashes-{ACCOUNT}", Key="stash", Body=b"kept")
    client("dynamodb").put_item(TableName="sleeper-sales-export-queues", Item=EXPORT_ITEM)
    fewer = lives.synthesise(
        DESTROYED, "out-fewer", *(part for part in LIFECYCLE_PARTS if "Batcher" not in part)
    )
    deploy(client, fewer)
    lives.check_rows()
    with pytest.raises(RuntimeError, match="already exists"):
        deploy(client, templates)
    retained = find_retained(templates, DESTROYED)
    assert set(check_retained(client, "sleeper-sales", DESTROYED, retained)) == OF_PARTS
    deploy(client, templates, adopts=True)
    stash = client("s3").get_object(Bucket=f"sleeper-sales-stashes-{ACCOUNT}", Key="stash")
    assert stash["Body"].read() == b"kept"
    assert lives.items("sleeper-sales-export-queues") == [EXPORT_ITEM]
    assert lives.items("sleeper-sales-ingest-batcher") == waiting
    lives.check_rows()


def check_destruction(
    lives: Lives, instance: DeployedInstance, templates: Mapping[str, Path]
) -> None:
    """Destroys the instance, and adopts what it left."""
    client = lives.emulator.client
    destroy(instance)
    assert read_rows(KEPT) == lives.newest[KEPT]
    with pytest.raises(RuntimeError, match="already exists"):
        deploy(client, templates[DESTROYED])
    destroy(instance)
    retained = find_retained(templates[DESTROYED], DESTROYED)
    assert set(check_retained(client, "sleeper-sales", DESTROYED, retained)) == LASTING
    others = find_retained(templates[KEPT], KEPT)
    assert check_retained(client, "sleeper-sales-eu", KEPT, others) == []
    with pytest.raises(RefusedError, match=r"belongs to the stack sleeper-sales-eu-"):
        check_retained(client, "sleeper-sales", DESTROYED, others)
    with pytest.raises(RefusedError, match="its tags do not name the instance"):
        check_retained(client, "sleeper-sale", "sale", retained)
    deploy(client, templates[DESTROYED], adopts=True)
    assert check_retained(client, "sleeper-sales", DESTROYED, retained) == []
    lives.check_rows()
    with closing(open_instance(f"aws:{DESTROYED}")) as ports:
        sleeper.Instance(ports).table("rows").ingest(make_rows("more", 600, 200))
    assert read_rows(DESTROYED) != lives.newest[DESTROYED]
    assert read_rows(KEPT) == lives.newest[KEPT]
