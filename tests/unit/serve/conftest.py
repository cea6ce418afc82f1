"""A local instance."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance", "test", {})
    opened_instance = open_local_instance(tmp_path / "instance")
    yield opened_instance
    opened_instance.close()
