"""A query of Athena's on an AWS instance over real servers, split after split."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sleeper.admin.tables import create_table
from sleeper.athena.properties import ATHENA_SPILL_BUCKET
from sleeper.athena.service import athena_connector
from sleeper.instance import Instance
from sleeper.storage.bucket import Bucket
from tests.handlers import functions
from tests.handlers.conftest import SCHEMA, Lambda, add_rows, known_to_functions
from tests.servers.aws_instance import AwsServers, aws_instance
from tests.unit.athena.protocol import Athena, Json, among, from_to

# An obstore without an endpoint in its hand asks AWS's own; that of these tests is not on TLS.
PLAIN_HTTP = {"AWS_ALLOW_HTTP": "true"}


@dataclass
class AthenaOnLambda(Athena):
    """Athena's side of the protocol, with the functions called by Lambda."""

    aws: Lambda = None  # type: ignore[assignment]

    def ask(self, kind: str, **members: Any) -> Json:
        reads = kind == "ReadRecordsRequest"
        function = functions.athena_records if reads else functions.athena_metadata
        response: Json = self.aws.call(function, self.request(kind, **members))
        return response


@pytest.fixture
def instance(
    aws_servers: AwsServers, data_bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Instance]:
    values = {ATHENA_SPILL_BUCKET.name: data_bucket.name}
    with aws_instance(aws_servers, tmp_path, values) as created:
        for name, value in PLAIN_HTTP.items():
            monkeypatch.setenv(name, value)
        with known_to_functions(created.where) as opened_instance:
            yield opened_instance


def test_splits_are_planned_and_read_by_functions(instance: Instance) -> None:
    create_table(instance, "t", SCHEMA, split_points=[100, 200, 300])
    add_rows(instance, "t", *range(0, 400, 2))
    add_rows(instance, "t", *range(1, 400, 2))
    athena = AthenaOnLambda(athena_connector(instance), aws=Lambda(instance))
    within = {"k": from_to(pa.int64(), 150, 250), "v": among(pa.string(), "v160", "v240", "v300")}
    assert len(athena.splits("t", within)) == 1
    assert athena.query("t", within)["k"].to_pylist() == [160, 240]
    spill = athena.query("t", block_bytes=1000, inline_bytes=0)
    assert spill["k"].to_pylist() == list(range(400))
