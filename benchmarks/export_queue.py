"""Export queues: the rates of draining, the cost of exports for commits, and their delay."""

import os
import sys
from contextlib import ExitStack

from benchmarks.export_queue_tasks import PASSWORD_VARIABLE
from benchmarks.measuring import Measured, Task, run_by_turns
from benchmarks.result import Aim, Figure, Result, figure, ratios
from benchmarks.settings import Settings
from tests.servers.postgres import find_postgres, postgres

_EXPORTS = 200_000
_BUCKETS = (1, 16, 119, 1009)
_DEFAULT_BUCKETS = 119
_COMMITS = 300
_MODULE = "benchmarks.export_queue_tasks"


def measure(settings: Settings) -> Result:
    exports = settings.rows or _EXPORTS
    home = str(settings.folder / "export-queue")
    figures = [
        *_measure_drains(settings, home, exports),
        *_measure_database(settings, home, exports),
        *_measure_commits(settings, home),
        *_measure_delay(settings, home),
    ]
    work = (
        f"{exports:,} rows of a key of ten letters, a long and a text of ten letters, ingested at"
        " once, taken up by bucket and drained by four threads. Commits are transactions of one row"
        f" with 0, 1 and 100 exports by turns, {_COMMITS} of each. All exports are counted at the"
        " receiver or in the report of the drain."
    )
    notes = (
        "With many buckets the exporter gets smaller batches: about 200 exports with 1,009."
        " PostgreSQL upserts each export only if its row is older, in a transaction per batch.",
        "The delay is from the beginning of a commit to the arrival of its export at a webhook,"
        " with `sleeper run` beside it and nothing else to do.",
    )
    return Result("export-queue", work, tuple(figures), (), notes)


def _measure_drains(settings: Settings, home: str, exports: int) -> list[Figure]:
    tasks = {
        str(buckets): Task(_MODULE, "drain", {"home": home, "exports": exports, "buckets": buckets})
        for buckets in _BUCKETS
    }
    runs = run_by_turns(tasks, settings.repeats)
    default = runs[str(_DEFAULT_BUCKETS)]
    taken_up = [exports / each.answer["take_up_seconds"] for each in default]
    return [
        figure(f"taken up, {_DEFAULT_BUCKETS} buckets", taken_up, "/s"),
        *(
            figure(f"drained to null, buckets: {buckets}", _rates(exports, results), "/s", Aim(5e4))
            for buckets, results in runs.items()
        ),
    ]


def _measure_database(settings: Settings, home: str, exports: int) -> list[Figure]:
    if find_postgres("postgres") is None:
        print("  PostgreSQL is left out: it is not installed", file=sys.stderr)
        return []
    runs: list[Measured] = []
    with ExitStack() as stack:
        server = stack.enter_context(postgres())
        os.environ[PASSWORD_VARIABLE] = server.password
        stack.callback(os.environ.pop, PASSWORD_VARIABLE)
        for _ in range(settings.repeats):
            arguments = {
                "home": home,
                "exports": exports,
                "buckets": _DEFAULT_BUCKETS,
                "exporter": f"{server.make_database().url}?table=exports",
            }
            runs += run_by_turns({"PostgreSQL": Task(_MODULE, "drain", arguments)}, 1)["PostgreSQL"]
    what = f"upserted into PostgreSQL, {_DEFAULT_BUCKETS} buckets"
    return [figure(what, _rates(exports, runs), "/s", Aim(5e3))]


def _measure_commits(settings: Settings, home: str) -> list[Figure]:
    task = Task(_MODULE, "commit", {"home": home, "commits": _COMMITS})
    (runs,) = run_by_turns({"commits": task}, settings.repeats).values()
    without, one, hundred = (
        [each.answer[count]["p50_ms"] for each in runs] for count in ("0", "1", "100")
    )
    most = Aim(1.3, is_most=True)
    return [
        figure("commit without exports, p50", without, "ms"),
        figure("commit with 1 export, of without", ratios(one, without), "×", most),
        figure("commit with 100 exports, of without", ratios(hundred, without), "×", most),
    ]


def _measure_delay(settings: Settings, home: str) -> list[Figure]:
    task = Task(_MODULE, "follow", {"home": home, "commits": _COMMITS})
    (runs,) = run_by_turns({"delay": task}, settings.repeats).values()
    most = Aim(1000, is_most=True)
    return [
        figure("commit to export, p50", [each.answer["p50_ms"] for each in runs], "ms"),
        figure("commit to export, p99", [each.answer["p99_ms"] for each in runs], "ms", most),
    ]


def _rates(exports: int, runs: list[Measured]) -> list[float]:
    return [exports / each.seconds for each in runs]
