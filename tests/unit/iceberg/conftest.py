"""Engines that read published tables."""

from collections.abc import Iterator

import pytest

from tests.engines import Readers


@pytest.fixture(scope="package")
def readers() -> Iterator[Readers]:
    with Readers() as opened:
        yield opened
