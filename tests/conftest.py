"""Real servers, started when a test first asks for one and ended with the tests."""

from collections.abc import Iterator

import pytest

from tests.servers.ministack import Ministack, ministack


@pytest.fixture(scope="session")
def ministack_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ministack]:
    with ministack(tmp_path_factory.mktemp("ministack")) as server:
        yield server
