"""An instance on AWS: engines attach to its catalog, and read its bucket."""

import json
from pathlib import Path

import pytest

import sleeper
from sleeper.opening import open_instance
from tests.engines import ENGINES, Readers, count_rows
from tests.servers.aws_instance import AwsServers, aws_instance
from tests.servers.serving import serving

pytestmark = pytest.mark.slow

SCHEMA = json.dumps(
    {
        "rowKeyFields": [{"name": "id", "type": "LongType"}],
        "valueFields": [{"name": "tags", "type": {"ListType": {"elementType": "StringType"}}}],
    }
)


def test_engines_read_a_table_in_a_bucket(aws_servers: AwsServers, tmp_path: Path) -> None:
    with (
        aws_instance(aws_servers, tmp_path) as where,
        Readers() as readers,
        sleeper.open_instance(where.where) as instance,
    ):
        table = instance.create_table("t", SCHEMA, split_points=[10])
        table.ingest([{"id": i, "tags": ["a", str(i)]} for i in range(20)])
        table.delete(keys=[[7]])
        expected = count_rows(table.query().to_arrow())
        ports = open_instance(where.where)
        with serving(ports) as server:
            source = {"uri": f"{server.url}/iceberg", "table": "sleeper.t"}
            for engine in ENGINES:
                assert count_rows(readers.read(engine, **source)) == expected, engine
            table.ingest([{"id": 30, "tags": []}])
            assert readers.read("pyiceberg", **source).num_rows == 20
        published = instance.publish_iceberg("t")
        assert published.metadata_url.startswith("s3://")
        assert not published.is_new
        ports.close()
