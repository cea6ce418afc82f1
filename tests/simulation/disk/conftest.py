"""A folder on tmpfs, which never uses the number of an inode again."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="sleeper-disk-") as name:
        path = Path(name, "machine")
        path.mkdir()
        yield path
