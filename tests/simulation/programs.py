"""Programs that replace Python's threads and clocks, which a test's own process must keep."""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def run_program(*arguments: str, seconds_max: float = 120) -> list[str]:
    """Runs Python with a program's text, or with `-m` and its name; returns the printed lines."""
    command = [sys.executable, *(arguments if len(arguments) > 1 else ("-c", *arguments))]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds_max,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()
