"""A stash on a real S3 server: layout, rows, locks, and a table that changes meanwhile."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper.stash import Stash
from sleeper.stash.prune import prune_stashes
from sleeper.stash.run import run_stash
from tests.servers.seaweedfs import S3Server

pytestmark = pytest.mark.slow

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [{"name": "v", "type": "StringType"}],
}
ROWS = 200_000


def test_a_stash_in_a_bucket_is_complete_and_readable(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3_server.bucket("table-data", f"stash-{os.getpid()}")
    assert bucket.credentials is not None
    monkeypatch.setenv("AWS_ENDPOINT_URL", str(bucket.endpoint))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", bucket.credentials.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", bucket.credentials.secret_access_key)
    monkeypatch.setenv("AWS_REGION", bucket.region or "us-east-1")
    destination = f"s3://{bucket.name}/{bucket.prefix}"
    with sleeper.create_instance(tmp_path / "instance") as instance:
        table = instance.create_table("a:b", SCHEMA)
        # Enough for an upload in parts.
        values = pa.array([os.urandom(64).hex() for _ in range(ROWS)])
        table.ingest(pa.table({"k": range(ROWS), "v": values}))
        first = run_stash(instance._ports, destination)
        stash = Stash.open(destination)
        stash.lock()
        table.delete(ranges=[(10, None)])
        second = run_stash(instance._ports, f"{destination}/", atomic=True)
    assert stash.stash_time() < Stash.open(destination).stash_time()
    assert sum(batch.num_rows for batch in stash.scan("a:b").batches()) == ROWS
    stash.unlock()
    assert [d["k"] for d in stash.scan("a:b")] == list(range(10))
    assert [root.name for root in stash._destination.roots()] == [first.root, second.root]
    assert stash.splits("a:b")[0] != stash.lock(first.root)
    (deleted,) = prune_stashes(instance._ports, destination, 0).pruned
    assert (deleted.name, deleted.files) == (first.root, 2)
    assert [root.name for root in stash._destination.roots() if root.success] == [second.root]
