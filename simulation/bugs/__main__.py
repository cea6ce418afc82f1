"""Searches for planted bugs: `python -m simulation.bugs`."""

import os
import sys

_HASH_SEED = "PYTHONHASHSEED"


def main() -> None:
    """Runs the command line in a process whose hashes, and so its orders, are always the same."""
    if os.environ.get(_HASH_SEED) != "0":
        os.environ[_HASH_SEED] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "simulation.bugs", *sys.argv[1:]])
    from simulation import surroundings
    from simulation.scheduling import patching

    # Before the product is imported, which binds names of these modules.
    surroundings.make_alike()
    patching.install()
    from simulation.bugs.command import run_command_line

    run_command_line()


if __name__ == "__main__":
    main()
