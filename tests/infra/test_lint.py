"""cfn-lint over all templates in one process, because it takes seconds to start."""

import subprocess
import sys
from pathlib import Path

from tests.infra.synthesis import Synthesis


def test_cfn_lint_finds_nothing(
    example: Synthesis, platforms: Synthesis, athena_stack: Synthesis
) -> None:
    # W3005: a nested stack waits for another although it also refers to it.
    program = [Path(sys.executable).with_name("cfn-lint"), "--ignore-checks", "W3005"]
    templates = [
        *example.folder.glob("*.template.json"),
        *platforms.folder.glob("*.template.json"),
        *athena_stack.folder.glob("*Athena*.template.json"),
    ]
    # Many parts are the same in each instance.
    different = {template.read_bytes(): template for template in templates}
    command = [*program, "--format", "parseable", "--", *different.values()]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.stdout == ""
    assert process.returncode == 0
