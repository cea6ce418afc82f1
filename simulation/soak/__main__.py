"""`python -m simulation.soak`: see the package."""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from simulation.soak.session import WORLDS, Settings, describe, run_session
from tests.spark.java import set_java_options

SPARK = "spark"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m simulation.soak",
        description="Runs processes of the product on real servers under faults, and compares "
        "their tables with a model. The exit status is 1 after a problem.",
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="time of all worlds together")
    parser.add_argument("--seed", type=int, help="default: a new one, which is printed")
    parser.add_argument(
        "--servers",
        default="local,aws",
        help=f"worlds: {', '.join(WORLDS)}; with {SPARK}, each has a Spark session too",
    )
    parser.add_argument("--folder", type=Path, help="default: a temporary one")
    arguments = parser.parse_args()
    names = arguments.servers.split(",")
    worlds = [name for name in names if name != SPARK] or ["local"]
    if not {*worlds} <= {*WORLDS}:
        parser.error(
            f"unknown servers: {arguments.servers} (expected {', '.join(WORLDS)}, {SPARK})"
        )
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="sleeper-soak-"))
    print(f"seed {seed}, {arguments.minutes:g} minutes, folder {folder}", flush=True)
    set_java_options()
    status = 0
    for name in worlds:
        seconds = arguments.minutes * 60 / len(worlds)
        settings = Settings(name, seed, seconds, folder / name, SPARK in names)
        start = time.monotonic()
        journal = run_session(settings)
        print(describe(journal, settings, time.monotonic() - start), flush=True)
        status |= bool(journal.problems)
    if not any(folder.iterdir()):
        folder.rmdir()
    return status


if __name__ == "__main__":
    sys.exit(main())
