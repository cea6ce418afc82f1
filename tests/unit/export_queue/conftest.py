"""The instance of tests of export queues."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance")
    with closing(open_local_instance(tmp_path / "instance")) as opened:
        yield opened
