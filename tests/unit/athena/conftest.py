"""A local instance, and a connector over it that spills to a folder."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sleeper.athena.connector import Connector, SpillBucket
from sleeper.datafiles.location import DataRoot
from sleeper.wiring.instance import Instance, OpenTable
from sleeper.wiring.local_instance import make_local_instance, open_local_instance
from sleeper.wiring.query import query_table
from tests.table_fixture import FakeClock
from tests.unit.athena.protocol import Athena


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def instance(tmp_path: Path, clock: FakeClock) -> Iterator[Instance]:
    make_local_instance(tmp_path / "instance", "test")
    opened = open_local_instance(tmp_path / "instance", clock)
    yield opened
    opened.close()


@pytest.fixture
def connector(instance: Instance, tmp_path: Path) -> Connector:
    return Connector(
        instance.tables,
        lambda ref: query_table(OpenTable(instance, ref)),
        instance.query_engine,
        SpillBucket("spilled", DataRoot(tmp_path / "spilled")),
    )


@pytest.fixture
def athena(connector: Connector) -> Athena:
    return Athena(connector)


@pytest.fixture
def raw_athena(connector: Connector) -> Athena:
    """The same over the files' rows as they lie there."""
    return replace(Athena(connector), database="sleeper_raw")
