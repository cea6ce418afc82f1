"""`python -m benchmarks [NAME...] [--rows N] [--repeats N] [--publish]`."""

import argparse
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import cast

from benchmarks.load import count_busy, wait_until_idle, wait_until_unused
from benchmarks.records import Recorded, read_records, record, replace_records
from benchmarks.report import table, write_reports
from benchmarks.result import Result
from benchmarks.settings import Settings

NAMES = (
    "ingest",
    "layout",
    "ingest-text",
    "start-up",
    "compaction",
    "compaction-peers",
    "aggregation",
    "merge-memory",
    "debt",
    "lookup",
    "lookup-peers",
    "lookup-s3",
    "commits",
    "state",
    "bulk-import",
    "bulk-import-lineitem",
    "commits-dynamo",
    "job-creation",
    "spark-read",
    "spark-changes",
    "sql",
    "json-functions",
    "costs",
    "query-service",
    "functions",
    "serve",
    "small-writes",
    "deletes",
    "purge",
    "upserts",
    "snapshots",
    "stash",
    "export-queue",
    "changes",
    "adjunct",
    "adjunct-spark",
    "iceberg",
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
    published = "wait until the machine is idle, and replace these results in docs/benchmarks.md"
    parser.add_argument("--publish", action="store_true", help=published)
    arguments = parser.parse_args()
    arguments.names = [name.replace("_", "-") for name in arguments.names]
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    settings = Settings(arguments.folder, arguments.rows, arguments.repeats)
    settings.folder.mkdir(parents=True, exist_ok=True)
    output = _ROOT / "docs" if arguments.publish else settings.folder
    load = wait_until_idle() if arguments.publish else os.getloadavg()[0]
    results: list[Recorded] = []
    for name in arguments.names or NAMES:
        busy = wait_until_unused() if arguments.publish else count_busy()
        print(f"==> {name}", file=sys.stderr)
        results.append(record(_measure(name)(settings), _command(arguments, name), load, busy))
        old = read_records(output / "benchmarks.json") if arguments.publish else []
        page = write_reports(replace_records(old, results, NAMES), output)
    print(table(results))
    print(f"written to {page}", file=sys.stderr)
    unmeasured = [each.result.name for each in results if not each.result.figures]
    if unmeasured:
        print(f"error: no figures of {', '.join(unmeasured)}", file=sys.stderr)
    return 1 if unmeasured else 0


def _command(arguments: argparse.Namespace, name: str) -> str:
    """Returns the command that repeats the measurement."""
    words = ["python -m benchmarks", name]
    words += [f"--rows {arguments.rows}"] if arguments.rows is not None else []
    return " ".join([*words, f"--repeats {arguments.repeats}"])


def _measure(name: str) -> Callable[[Settings], Result]:
    module = import_module(f"benchmarks.{name.replace('-', '_')}")
    return cast(Callable[[Settings], Result], module.measure)


if __name__ == "__main__":
    sys.exit(main())
