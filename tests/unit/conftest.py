"""Tables for the tests of the workflows."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real_table import RealTable

MakeTable = Callable[..., RealTable]


@pytest.fixture
def make_table(tmp_path: Path) -> Iterator[MakeTable]:
    """Makes tables of real files, each in a folder of its own."""
    made: list[RealTable] = []

    def make(**settings: Any) -> RealTable:
        folder = tmp_path / f"table-{len(made)}"
        folder.mkdir()
        made.append(RealTable(folder, **settings))
        return made[-1]

    yield make
    for table in made:
        table.close()


@pytest.fixture
def table(make_table: MakeTable) -> RealTable:
    """A table of one long key, not split."""
    return make_table()
