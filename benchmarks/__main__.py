"""`python -m benchmarks [NAME...] [--rows N] [--repeats N] [--output FOLDER]`."""

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import cast

from benchmarks.report import write_reports
from benchmarks.result import Result
from benchmarks.settings import Settings

NAMES = (
    "ingest",
    "layout",
    "compaction",
    "compaction-peers",
    "aggregation",
    "merge-memory",
    "lookup",
    "lookup-peers",
    "lookup-s3",
    "commits",
    "state",
    "bulk-import",
    "commits-dynamo",
    "job-creation",
    "spark-read",
    "sql",
    "query-service",
    "functions",
    "serve",
    "deletes",
    "purge",
    "upserts",
    "snapshots",
    "stash",
    "export-queue",
    "changes",
    "adjunct",
    "adjunct-spark",
)
_ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Runs the benchmarks and writes their reports."""
    parser = argparse.ArgumentParser("benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    own = "instead of the benchmark's own number"
    parser.add_argument("--rows", "--partitions", dest="rows", type=int, help=own)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=_ROOT / ".bench", help="for rows and files")
    parser.add_argument("--output", type=Path, help="where the table goes; docs/ if all are run")
    arguments = parser.parse_args()
    arguments.names = [name.replace("_", "-") for name in arguments.names]
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    names = arguments.names or NAMES
    settings = Settings(arguments.folder, arguments.rows, arguments.repeats)
    settings.folder.mkdir(parents=True, exist_ok=True)
    results = []
    for name in names:
        print(f"==> {name}", file=sys.stderr)
        results.append(_measure(name)(settings))
    is_whole = not arguments.names and arguments.rows is None
    output = arguments.output or (_ROOT / "docs" if is_whole else settings.folder)
    outputs = write_reports(results, output, _command(arguments))
    print(outputs.read_text())
    print(f"written to {outputs}", file=sys.stderr)
    return 0


def _command(arguments: argparse.Namespace) -> str:
    """Returns the command that repeats the measurement."""
    words = ["python -m benchmarks", *arguments.names]
    words += [f"--rows {arguments.rows}"] if arguments.rows is not None else []
    return " ".join([*words, f"--repeats {arguments.repeats}"])


def _measure(name: str) -> Callable[[Settings], Result]:
    module = import_module(f"benchmarks.{name.replace('-', '_')}")
    return cast(Callable[[Settings], Result], module.measure)


if __name__ == "__main__":
    sys.exit(main())
