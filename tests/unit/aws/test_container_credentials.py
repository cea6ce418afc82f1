"""Credentials of a container, which a server at a full URI gives, as for pods of EKS."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.aws.clients import describe_bucket
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.query.engine import QueryEngine, QuerySettings
from sleeper.storage.bucket import open_bucket
from tests.servers.faulty_s3 import faulty_s3

TOKEN = "a-token"
_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
)


@contextmanager
def credential_server() -> Iterator[tuple[str, list[str | None]]]:
    """Runs a server of credentials. Yields its URI, and the tokens of all requests."""
    tokens: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            tokens.append(self.headers.get("Authorization"))
            expiry = datetime.now(UTC) + timedelta(hours=1)
            keys = {
                "AccessKeyId": "container-key",
                "SecretAccessKey": "secret",
                "Token": "session",
                "Expiration": expiry.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
            content = json.dumps(keys).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/credentials", tokens
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("token_in", ["file", "variable", "none"])
def test_everything_that_reads_s3_uses_them(
    token_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in _VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    # boto3's credentials of a profile are shared by all clients of a process.
    profile = f"container-{tmp_path.name}"
    (tmp_path / "config").write_text(f"[profile {profile}]\nregion = eu-west-2\n")
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", profile)
    if token_in == "file":
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    elif token_in == "variable":
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", TOKEN)
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "file")
    with credential_server() as (uri, tokens), faulty_s3() as server:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", uri)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint)
        server.objects["b/file.parquet"] = (tmp_path / "file").read_bytes()
        bucket = describe_bucket("b")
        boto3.Session().client("s3").get_object(Bucket="b", Key="file.parquet")["Body"].read()
        open_bucket(bucket).get("file.parquet").bytes()
        engine = QueryEngine(QuerySettings(EngineSettings(tmp_path, 2**26, buckets=(bucket,))))
        assert engine.session.read_parquet("s3://b/file.parquet").count() == 2
        assert len(server.access_keys) >= 3
        assert set(server.access_keys) == {"container-key"}
    assert set(tokens) == {None if token_in == "none" else TOKEN}
