"""A local instance in a temporary folder, its clock in the test's hand."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sleeper.clock import system_clock
from sleeper.wiring.instance import Instance
from sleeper.wiring.local_instance import make_local_instance, open_local_instance
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
