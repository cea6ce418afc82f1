"""A local instance, its clock in the test's hand; and one on AWS, over real servers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sleeper.clock import system_clock
from sleeper.wiring.instance import Instance
from sleeper.wiring.local_instance import make_local_instance, open_local_instance
from tests.handlers.conftest import known_to_functions
from tests.servers.aws_instance import AwsInstance, AwsServers, aws_instance
from tests.table_fixture import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(system_clock())


@pytest.fixture
def instance(tmp_path: Path, clock: FakeClock) -> Iterator[Instance]:
    make_local_instance(tmp_path / "instance", "test", {"sleeper.engine.threads": "1"})
    opened = open_local_instance(tmp_path / "instance", clock)
    yield opened
    opened.close()


@pytest.fixture
def deployed(aws_servers: AwsServers, tmp_path: Path) -> Iterator[AwsInstance]:
    """An instance on AWS, without a deployment."""
    with aws_instance(aws_servers, tmp_path) as made:
        yield made


@pytest.fixture
def on_aws(deployed: AwsInstance) -> Iterator[Instance]:
    """That instance, which functions open too."""
    with known_to_functions(deployed.where) as opened:
        yield opened
