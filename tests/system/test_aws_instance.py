"""The command line and the workflows on an AWS instance, over real servers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sleeper.wiring.instance import Instance
from sleeper.wiring.opening import open_instance
from tests.servers.aws_instance import AwsInstance, AwsServers, aws_instance
from tests.servers.dynoxide import DynamoServer
from tests.servers.ministack import Ministack
from tests.servers.seaweedfs import S3Server


@pytest.fixture
def deployed(
    s3_server: S3Server,
    dynamo_server: DynamoServer,
    ministack_server: Ministack,
    tmp_path: Path,
) -> Iterator[AwsInstance]:
    servers = AwsServers(s3_server, dynamo_server, ministack_server)
    with aws_instance(servers, tmp_path) as made:
        yield made


@pytest.fixture
def instance(deployed: AwsInstance) -> Iterator[Instance]:
    opened = open_instance(deployed.where)
    yield opened
    opened.close()


def test_x(instance: Instance, deployed):
    from sleeper.wiring.tables import create_table

    create_table(
        instance,
        "t",
        '{"rowKeyFields":[{"name":"id","type":"StringType"}],"valueFields":[{"name":"n","type":"LongType"}]}',
    )
    assert instance.table("t").properties()
    with instance.table("t").state.reading() as state:
        assert state.number == 1
