"""The simulation starts functions as the deployment does."""

import json
from pathlib import Path

from tests.infra.simulated_functions import FILE, synthesised_functions


def test_the_simulation_has_the_functions_of_the_templates(tmp_path: Path) -> None:
    """Run `python -m tests.infra.simulated_functions` after a change of the stacks."""
    assert json.loads(FILE.read_text()) == synthesised_functions(tmp_path)
