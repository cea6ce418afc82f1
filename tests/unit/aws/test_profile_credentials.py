"""Credentials of a profile, which a program gives and which expire, are renewed."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.aws.clients import ProfileCredentials, describe_bucket
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.query.engine import QueryEngine, QuerySettings
from sleeper.storage import bucket as bucket_module
from sleeper.storage.bucket import Bucket, open_bucket
from tests.servers.faulty_s3 import FaultyS3, faulty_s3

# Credentials that expire within ten minutes are renewed before each use.
_PROGRAM = """
import datetime, json, pathlib
count = pathlib.Path(__file__).with_name("count")
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
expiry = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=5)
print(json.dumps({"Version": 1, "AccessKeyId": f"key-{number}", "SecretAccessKey": "secret",
    "SessionToken": "token", "Expiration": expiry.isoformat()}))
"""


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A profile of its own: boto3's credentials of one are shared by all clients of a process."""
    program, name = tmp_path / "program.py", f"profile-{tmp_path.name}"
    program.write_text(_PROGRAM)
    config = tmp_path / "config"
    config.write_text(
        f"[profile {name}]\nregion = eu-west-2\ncredential_process = {sys.executable} {program}\n"
    )
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", name)
    return name


@pytest.fixture
def described(profile: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Bucket, FaultyS3]]:
    with faulty_s3() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint)
        bucket = describe_bucket("b")
        assert bucket.credentials == ProfileCredentials(profile)
        yield bucket, server


def test_a_bucket_is_written_with_renewed_credentials(
    described: tuple[Bucket, FaultyS3], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_module, "_CREDENTIALS_MINUTES", 0)
    bucket, server = described
    store = open_bucket(bucket)
    store.put("first", b"1")
    store.put("second", b"2")
    first, second = server.access_keys
    assert {first[:4], second[:4]} == {"key-"}
    assert first != second


def test_the_engine_reads_with_renewed_credentials(
    described: tuple[Bucket, FaultyS3], tmp_path: Path
) -> None:
    bucket, server = described
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "file")
    server.objects["b/file.parquet"] = (tmp_path / "file").read_bytes()
    engine = QueryEngine(QuerySettings(EngineSettings(tmp_path, 2**26, buckets=(bucket,))))
    used = []
    for _ in range(2):
        server.access_keys.clear()
        assert engine.session.read_parquet("s3://b/file.parquet").count() == 2
        used.append(set(server.access_keys))
    assert all(used)
    assert not used[0] & used[1]
