"""A query of Athena's against the two functions, spilled to a bucket."""

import base64
from typing import Any

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from obstore import get

from sleeper.athena.properties import ATHENA_SPILL_BUCKET
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.instance import Instance
from sleeper.storage.bucket import Bucket, open_bucket
from tests.handlers import functions
from tests.handlers.conftest import Lambda, add_rows, make_table
from tests.servers.seaweedfs import S3Server
from tests.unit.athena.recorded import first_request


@pytest.fixture
def spill_bucket(
    instance: Instance,
    data_bucket: Bucket,
    s3_server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> Bucket:
    """A bucket that a function finds as on AWS: by its name, and by the environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.credentials.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.credentials.secret_access_key)
    monkeypatch.setenv("AWS_REGION", s3_server.region)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    instance.change_properties({ATHENA_SPILL_BUCKET.name: data_bucket.name})
    return s3_server.bucket(data_bucket.name)


def request(kind: str, **members: Any) -> dict[str, Any]:
    return {
        "@type": kind,
        "identity": {},
        "queryId": "q",
        "catalogName": "sleeper_test",
        "tableName": {"schemaName": "sleeper", "tableName": "events"},
        "constraints": {"summary": {}},
        **members,
    }


def test_a_query_from_its_table_to_spilled_rows(
    aws: Lambda, instance: Instance, spill_bucket: Bucket
) -> None:
    make_table(instance, "Events")
    add_rows(instance, "Events", *range(100))

    def ask(kind: str, **members: Any) -> Any:
        return aws.call(functions.athena_metadata, request(kind, **members))

    assert ask("ListTablesRequest", schemaName="sleeper")["tables"] == [
        {"schemaName": "sleeper", "tableName": "events"}
    ]
    schema = ask("GetTableRequest")["schema"]
    (split,) = ask("GetSplitsRequest", continuationToken=None)["splits"]
    read = request(
        "ReadRecordsRequest", schema=schema, split=split, maxBlockSize=10**7, maxInlineBlockSize=0
    )
    response = aws.call(functions.athena_records, read)
    (block,) = response["remoteBlocks"]
    assert block["bucket"] == spill_bucket.name
    content = bytes(get(open_bucket(spill_bucket), block["key"]).bytes())
    secret, nonce = (base64.b64decode(response["encryptionKey"][k]) for k in ("key", "nonce"))
    rows = pa.ipc.read_record_batch(
        pa.py_buffer(AESGCM(secret).decrypt(nonce, content, None)),
        pa.ipc.read_schema(pa.py_buffer(base64.b64decode(response["schema"]))),
    )
    assert rows["k"].to_pylist() == list(range(100))


def test_client_and_server_answer_pings(aws: Lambda, spill_bucket: Bucket) -> None:
    ping = first_request(6, "PingRequest")
    for function in (functions.athena_metadata, functions.athena_records):
        assert aws.call(function, ping)["serDeVersion"] == 6


def test_a_refusal_is_raised_with_its_reason(aws: Lambda, spill_bucket: Bucket) -> None:
    with pytest.raises(NotFoundError, match="no table is named 'events'"):
        aws.call(functions.athena_metadata, request("GetTableRequest"))
    with pytest.raises(InvalidRequestError, match="member '@type' is nothing"):
        aws.call(functions.athena_records, {"query": "SELECT 1"})
