"""Random histories of a local instance agree with the model after each operation."""

from pathlib import Path

import pytest

from simulation.workload.registry import OPERATIONS
from simulation.workload.system_operations import SYSTEMS
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


def test_a_history_has_the_operations_of_the_core_only(tmp_path: Path) -> None:
    driver = Driver(tmp_path, 0)
    driver.close()
    systems = {module.__name__ for module in SYSTEMS}
    others = {each.name for each in OPERATIONS.values() if each.run.__module__ in systems}
    assert others
    assert {each.name for each in driver.operations} == OPERATIONS.keys() - others
