"""Tables for the tests of the workflows."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sleeper
from sleeper.clock import system_clock
from sleeper.local.instance import open_local_instance
from tests.clock import FakeClock
from tests.tables.data_table import DataTable

MakeTable = Callable[..., DataTable]


@pytest.fixture
def clock() -> FakeClock:
    """The clock of the instance of a test that has both."""
    return FakeClock(system_clock())


@pytest.fixture
def instance(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[sleeper.Instance]:
    """An open local instance without tables."""
    folder = tmp_path / "instance"
    sleeper.create_instance(folder).close()
    has_clock = "clock" in request.fixturenames
    clock = request.getfixturevalue("clock") if has_clock else system_clock
    with sleeper.Instance(open_local_instance(folder, clock)) as opened:
        yield opened


@pytest.fixture
def make_table(tmp_path: Path) -> Iterator[MakeTable]:
    """Makes tables of Parquet files, each in a folder of its own."""
    tables: list[DataTable] = []

    def make(**settings: Any) -> DataTable:
        folder = tmp_path / f"table-{len(tables)}"
        folder.mkdir()
        tables.append(DataTable(folder, **settings))
        return tables[-1]

    yield make
    for table in tables:
        table.close()


@pytest.fixture
def table(make_table: MakeTable) -> DataTable:
    """A table of one long key, not split."""
    return make_table()
