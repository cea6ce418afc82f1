"""The checks find planted bugs within a few seeds.

The seeds are searched anew, because each change of the workload changes their histories. All bugs:
`python -m simulation.bugs`.
"""

import subprocess
import sys

_SEEDS = 12
_SECONDS_MAX = 240.0
# Those that a few histories suffice for.
_QUICK = ("reference-dropped-on-push-down", "horizon-off-by-one", "job-id-forgotten-early")


def test_quick_bugs_are_found() -> None:
    command = [sys.executable, "-m", "simulation.bugs", "--seeds", str(_SEEDS), *_QUICK]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False
    )
    assert result.returncode == 0, result.stdout
    assert len(result.stdout.splitlines()) == len(_QUICK)
