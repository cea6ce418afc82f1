"""Rows that many clients post one at a time, each acknowledged when it is durable."""

import shutil
from pathlib import Path

from benchmarks import wrk
from benchmarks.measuring import Task, Watch, run_by_turns
from benchmarks.result import Aim, Result, check, figure
from benchmarks.serve import serve_folder
from benchmarks.settings import Settings
from sleeper.api import create_instance, open_instance

_CLIENTS = 64
_SCHEMA = (
    '{"rowKeyFields": [{"name": "k", "type": "LongType"}],'
    ' "valueFields": [{"name": "v", "type": "StringType"}]}'
)
_COUNTS = (
    "SELECT count(*) AS rows, count(DISTINCT v) AS distinct_rows,"
    " sum(CASE WHEN v LIKE 'row-%' THEN 1 ELSE 0 END) AS load_rows FROM t"
)


def measure(settings: Settings) -> Result:
    if not wrk.is_installed():
        return Result("small-writes", "", (), notes=("wrk is not installed.",))
    task = Task(__name__, "posts", {"folder": str(settings.folder / "small-writes")})
    runs = run_by_turns({"posts": task}, settings.repeats)["posts"]
    answers = [run.answer for run in runs]
    what = f"{_CLIENTS} clients over HTTP, a row each"
    figures = (
        figure(what, [a["rate"] for a in answers], "rows/s", Aim(2_000)),
        figure("the same, p50", [a["p50_ms"] for a in answers], "ms"),
        figure("the same, p99", [a["p99_ms"] for a in answers], "ms", Aim(250, is_most=True)),
        figure("rows of a commit", [a["group_rows"] for a in answers], "rows"),
    )
    work = (
        f"{_CLIENTS} clients with one connection each post one row of a long and a text after"
        " another, with an idempotency key each, for ten seconds, by wrk over loopback on the same"
        " machine. A row is acknowledged when its file and its transaction are synchronized. Each"
        " response is checked, and afterwards that the table has every acknowledged row once."
    )
    return Result("small-writes", work, figures)


def posts(_: Watch, folder: str) -> dict[str, float]:
    """Posts rows, and counts them."""
    place = Path(folder)
    shutil.rmtree(place, ignore_errors=True)
    with create_instance(place) as instance:
        instance.create_table("t", _SCHEMA)
    with serve_folder(folder) as (url, process):
        assert process.stderr is not None
        token = process.stderr.readline().rpartition("#token=")[2].strip()
        load, warm = wrk.post_rows(f"http://{url}/tables/t/rows", token, _CLIENTS, place)
    check(load.wrong == 0, f"{load.wrong} of {load.requests} responses are wrong or missing")
    accepted = load.accepted + warm.accepted
    with open_instance(place) as instance:
        (found,) = instance.sql(_COUNTS).to_arrow().to_pylist()
        commits = instance.table("t").transaction().version // 2
    rows = found["rows"]
    # A row whose response came after the end may be there too.
    check(rows == found["distinct_rows"], f"{rows} rows are not distinct: {found}")
    check(accepted <= rows <= accepted + 2 * _CLIENTS, f"{rows} rows of {accepted} accepted")
    check(found["load_rows"] >= load.accepted, f"{found} of {load.accepted} accepted")
    shutil.rmtree(place)
    return {
        "rate": load.rate,
        "p50_ms": load.p50_ms,
        "p99_ms": load.p99_ms,
        "group_rows": rows / max(commits, 1),
    }
