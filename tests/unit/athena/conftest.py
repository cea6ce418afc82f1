"""A local instance, and a connector over it that spills to a folder."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sleeper.athena.connector import Connector
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from tests.clock import FakeClock
from tests.unit.athena.protocol import Athena, connector_of


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def instance(tmp_path: Path, clock: FakeClock) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance", "test")
    opened_instance = open_local_instance(tmp_path / "instance", clock)
    yield opened_instance
    opened_instance.close()


@pytest.fixture
def connector(instance: Instance, tmp_path: Path) -> Connector:
    return connector_of(instance, tmp_path / "spilled")


@pytest.fixture
def athena(connector: Connector) -> Athena:
    return Athena(connector)


@pytest.fixture
def raw_athena(connector: Connector) -> Athena:
    """The same over the files' rows as they lie there."""
    return replace(Athena(connector), database="sleeper_raw")
