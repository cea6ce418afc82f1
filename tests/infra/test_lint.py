"""The rules of cfn-lint, over all templates in one process: it takes seconds to start."""

import subprocess
import sys
from pathlib import Path

from tests.infra.synthesis import Synthesis


def test_cfn_lint_finds_nothing(
    example: Synthesis, platforms: Synthesis, with_athena: Synthesis
) -> None:
    # W3005: a nested stack waits for another although it also refers to it.
    program = [Path(sys.executable).with_name("cfn-lint"), "--ignore-checks", "W3005"]
    templates = [
        *example.folder.glob("*.template.json"),
        *platforms.folder.glob("*.template.json"),
        *with_athena.folder.glob("*Athena*.template.json"),
    ]
    command = [*program, "--format", "parseable", "--", *templates]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0
