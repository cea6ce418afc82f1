"""One synthesis of the example for all tests of a process: it takes seconds."""

import pytest

from tests.infra.synthesis import Synthesis, synthesise


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """The templates of `docs/examples/deploy`."""
    return synthesise(tmp_path_factory.mktemp("cdk") / "out")
