from pathlib import Path

import pytest

from tests.table_fixture import TableUnderTest


@pytest.fixture
def table(tmp_path: Path) -> TableUnderTest:
    return TableUnderTest(tmp_path, "embedded").initialise()
