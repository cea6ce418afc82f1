"""Random histories of a local instance agree with the model after each operation."""

from pathlib import Path

import pytest

from tests.examples import examples
from tests.simulation.model.driver import Driver


@pytest.mark.parametrize("seed", range(examples(3)))
def test_a_history_agrees_with_its_model(tmp_path: Path, seed: int) -> None:
    driver = Driver(tmp_path, seed)
    try:
        driver.run(80)
        driver.check_backups()
        driver.settle()
    finally:
        driver.close()
    done = {name for name, outcome in driver.outcomes if outcome == "done"}
    assert len(done) > 10
