"""A local instance, its clock in the test's hand; one on AWS; an emulator to deploy to."""

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from sleeper.clock import system_clock
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from tests.clock import FakeClock
from tests.handlers.conftest import known_to_functions
from tests.servers.aws_clients import forget_clients
from tests.servers.aws_instance import AwsInstance, AwsServers, aws_instance
from tests.servers.ministack import Ministack, ministack


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(system_clock())


@pytest.fixture
def instance(tmp_path: Path, clock: FakeClock) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance", "test", {"sleeper.engine.threads": "1"})
    opened_instance = open_local_instance(tmp_path / "instance", clock)
    yield opened_instance
    opened_instance.close()


@pytest.fixture
def deployed_instance(aws_servers: AwsServers, tmp_path: Path) -> Iterator[AwsInstance]:
    """An instance on AWS, without a deployment."""
    with aws_instance(aws_servers, tmp_path) as created:
        yield created


@pytest.fixture
def instance_on_aws(deployed_instance: AwsInstance) -> Iterator[Instance]:
    """The same instance, opened, and known to functions."""
    with known_to_functions(deployed_instance.where) as opened_instance:
        yield opened_instance


@pytest.fixture(scope="session")
def recorded_calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder of what roles did in each test with an emulator of its own, by its name."""
    return tmp_path_factory.mktemp("recorded-calls")


@pytest.fixture
def emulator(
    tmp_path: Path, recorded_calls: Path, request: pytest.FixtureRequest
) -> Iterator[Ministack]:
    """An emulator for this test alone, because rules go on firing as long as it runs.

    It lets nobody do what his role's policies do not allow, and records what each role does.
    """
    place = tmp_path / "emulator"
    place.mkdir()
    libraries = Path(sysconfig.get_path("purelib"))
    file = recorded_calls / f"{request.node.name}.jsonl"
    with ministack(place, libraries, checks_policies=True, recorded_calls=file) as running:
        yield running


@pytest.fixture
def emulator_environment(
    emulator: Ministack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """Directs this process and its children to the emulator."""
    environment = emulator.environment()
    for name, value in (environment | {"SLEEPER_STATE_FOLDER": str(tmp_path / "state")}).items():
        monkeypatch.setenv(name, value)
    forget_clients()
    yield environment
    forget_clients()
