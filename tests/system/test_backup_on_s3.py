"""Backups between kinds of instances: a folder, and AWS with real servers of S3 and DynamoDB."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper.clock import system_clock
from sleeper.errors import ConflictError, DataError, InvalidRequestError
from sleeper.properties.instance import ID
from sleeper.runs.lock import lock_root
from sleeper.storage.bucket import Bucket
from sleeper.storage.location import DataRoot
from tests.clock import FakeClock
from tests.servers.aws_instance import AwsInstance

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "sortKeyFields": [],
    "valueFields": [{"name": "v", "type": "StringType"}],
}


def rows_of(*keys: int) -> pa.Table:
    return pa.table({"k": keys, "v": [f"row {key}" for key in keys]})


def list_keys(table: sleeper.Table) -> list[int]:
    keys: list[int] = table.query().to_arrow()["k"].to_pylist()
    return keys


def test_a_backup_moves_tables_between_a_folder_and_aws(
    deployed_instance: AwsInstance, tmp_path: Path
) -> None:
    place = f"s3://{deployed_instance.source_bucket}/backups/one"
    with sleeper.create_instance(tmp_path / "local") as local:
        table = local.create_table("rows", SCHEMA, split_points=[10])
        table.ingest(rows_of(1, 2, 11), job_id="first")
        table.ingest(rows_of(3, 12))
        table.delete(keys=[[2]])
        local.create_table("empty", SCHEMA)
        first = local.backup(place)
        assert [t.copied_objects for t in local.backup(place, keep=1).tables] == [0, 0]
    result = sleeper.restore_instance(place, deployed_instance.where)
    assert {t.name: t.rows for t in result.tables} == {"rows": 5, "empty": 0}
    with sleeper.open_instance(deployed_instance.where) as aws:
        table = aws.table("rows")
        assert list_keys(table) == [1, 3, 11, 12]
        assert table.ingest(rows_of(1, 2, 11), job_id="first").done_before
        table.ingest(rows_of(4))
        with pytest.raises(ConflictError, match=r"table 'empty' with id .* exists"):
            sleeper.restore_instance(place, deployed_instance.where)
        with pytest.raises(InvalidRequestError, match="in the instance's own bucket"):
            aws.backup(aws._ports.storage.root.url_of("backups"))
        with pytest.raises(InvalidRequestError, match="holds backups of instance 'local'"):
            aws.backup(place)
        second = aws.backup(tmp_path / "place", tables=["rows"])
    assert second.tables[0].number > first.tables[1].number
    sleeper.restore_instance(tmp_path / "place", tmp_path / "new")
    with sleeper.open_instance(tmp_path / "new") as new:
        assert list_keys(new.table("rows")) == [1, 3, 4, 11, 12]
        new.table("rows").ingest(rows_of(5))
        assert new._ports.properties().get(ID) == deployed_instance.id
        assert "sleeper.data.bucket" not in new._ports.properties().values


def test_a_restore_to_aws_that_fails_is_continued(
    deployed_instance: AwsInstance, tmp_path: Path
) -> None:
    with sleeper.create_instance(tmp_path / "local") as local:
        table = local.create_table("rows", SCHEMA)
        table.ingest(rows_of(1, 2))
        local.backup(tmp_path / "place")
    (file,) = (tmp_path / "place").rglob("*.parquet")
    content = file.read_bytes()
    file.unlink()
    with pytest.raises(DataError, match=file.name):
        sleeper.restore_instance(tmp_path / "place", deployed_instance.where)
    with sleeper.open_instance(deployed_instance.where) as aws:
        assert aws.tables() == []
    file.write_bytes(content)
    sleeper.restore_instance(tmp_path / "place", deployed_instance.where)
    with sleeper.open_instance(deployed_instance.where) as aws:
        assert list_keys(aws.table("rows")) == [1, 2]


def test_a_lock_in_a_bucket_is_released_or_expires(data_bucket: Bucket) -> None:
    root, clock = DataRoot(data_bucket), FakeClock(system_clock())
    with lock_root(root, "lock", "a backup", clock) as lock:
        with (
            pytest.raises(ConflictError, match=r"locked by a backup on .*\(until"),
            lock_root(root, "lock", "another", clock),
        ):
            pass
        lock.check()
    assert list(root.list_objects("")) == []
    with lock_root(root, "lock", "a paused backup", clock) as lock:
        clock.now_ms += 301_000
        with lock_root(root, "lock", "another", clock) as another:
            with pytest.raises(ConflictError, match="was locked by another process"):
                lock.check()
            another.check()
    assert list(root.list_objects("")) == []


def test_the_lock_of_a_dead_process_is_taken_at_once(data_bucket: Bucket) -> None:
    root = DataRoot(data_bucket)
    with lock_root(root, "lock", "a backup", system_clock):
        content = json.loads(root.read("lock"))
    for host, is_taken in ((content["host"], True), ("another-host", False)):
        left = {**content, "host": host, "process": "1@1-0", "until": content["until"]}
        with root.replacing("lock") as sink:
            sink.write(json.dumps(left).encode())
        try:
            with lock_root(root, "lock", "a backup", system_clock):
                assert is_taken
        except ConflictError:
            assert not is_taken
