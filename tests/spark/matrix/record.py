"""The record of runs, by minor version of PySpark, and the section of docs/spark.md made of it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.spark.matrix.features import DATA_SOURCES, FEATURES

RECORD = Path(__file__).with_name("record.json")
PAGE = Path(__file__).parents[3] / "docs" / "spark.md"
_BEGIN = "<!-- what `make spark-matrix` recorded -->\n"
_END = "<!-- end of the record -->\n"

Run = Mapping[str, Any]


def read_record() -> dict[str, Run]:
    """Returns the last run of each minor version."""
    record: dict[str, Run] = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def minor_of(run: Run) -> str:
    """Returns the minor version of a run, such as 4.3."""
    return ".".join(run["pyspark"].split(".")[:2])


def record_run(run: Run) -> None:
    """Writes a run without a failure into the record and the page.

    A run of another Python with the same outcomes is one more Python of the version.
    """
    record = read_record()
    before = record.get(minor_of(run), {})
    pythons = {run["python"]}
    kinds = ("pyspark", "features", "connect")
    if all(before.get(kind) == run.get(kind) for kind in kinds):
        pythons |= set(before["pythons"])
    kept = {kind: run[kind] for kind in kinds if kind in run}
    ordered = sorted(pythons, key=lambda text: tuple(map(int, text.split("."))))
    write_record({**record, minor_of(run): {**kept, "pythons": ordered}})


def has_formats(run: Run) -> bool:
    """Returns whether the version of a run has Python data sources."""
    return tuple(map(int, minor_of(run).split("."))) >= DATA_SOURCES


def write_record(runs: Mapping[str, Run]) -> None:
    """Writes the record, and the page's section."""
    ordered = dict(sorted(runs.items(), key=lambda item: tuple(map(int, item[0].split(".")))))
    RECORD.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(with_section(PAGE.read_text(encoding="utf-8"), ordered), encoding="utf-8")


def with_section(page: str, runs: Mapping[str, Run]) -> str:
    """Returns the page with the section of the runs."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{_format(runs)}{_END}{after}"


def _format(runs: Mapping[str, Run]) -> str:
    """Returns a table with a column for each version, and one for its run on Spark Connect."""
    columns = [(run["pyspark"], run["features"]) for run in runs.values()]
    columns += [
        (f"{run['pyspark']} Connect", run["connect"]) for run in runs.values() if "connect" in run
    ]
    lines = [f"| PySpark | {' | '.join(head for head, _ in columns)} |"]
    lines.append(f"|---|{'---|' * len(columns)}")
    for feature in FEATURES:
        cells = [_cell(outcomes.get(feature.name)) for _, outcomes in columns]
        lines.append(f"| {feature.name} | {' | '.join(cells)} |")
    pythons = [", ".join(run["pythons"]) for run in runs.values()]
    pythons += [""] * (len(columns) - len(pythons))
    lines.append(f"| Python | {' | '.join(pythons)} |")
    return "\n" + "\n".join(lines) + "\n\n"


def _cell(outcome: Run | None) -> str:
    if outcome is None:
        return ""
    return f"needs {outcome['needs']}" if "needs" in outcome else "yes"
