from pathlib import Path

import pytest

from tests.tables.state_table import StateTable


@pytest.fixture
def table(tmp_path: Path) -> StateTable:
    return StateTable(tmp_path, "embedded").initialise()
