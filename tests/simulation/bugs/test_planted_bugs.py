"""The checks find planted bugs within their number of seeds.

The seeds are searched anew, because each change of the workload changes their histories. These bugs
are found soon; `make planted-bugs` searches for all.
"""

import subprocess
import sys

import pytest

_SEEDS = 10
_QUICK = (
    "delete-hides-later-rows",
    "folder-sync-forgotten",
    "last-number-wrong",
    "released-hold-still-counts",
)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_quick_bugs_are_found() -> None:
    command = [sys.executable, "-m", "simulation.bugs", "--seeds", str(_SEEDS), *_QUICK]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    assert len(result.stdout.splitlines()) == len(_QUICK)
