"""Servers that tests share: started when the first test needs them, ended with the run."""

from collections.abc import Iterator

import pytest

from tests.servers.dynoxide import DynamoServer, dynoxide


@pytest.fixture(scope="session")
def dynamo_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoServer]:
    """A real DynamoDB server."""
    with dynoxide(tmp_path_factory.mktemp("dynamo")) as server:
        yield server
