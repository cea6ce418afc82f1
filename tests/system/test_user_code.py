"""Wheels from a project to worker processes, and background work with defective ones."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper.admin.code import add_wheels
from sleeper.admin.properties import set_table_properties
from sleeper.instance import Instance
from sleeper.opening import create_instance, open_instance
from sleeper.reports.output import ReportKind
from sleeper.reports.service import report
from sleeper.workers.runner import run_instance
from tests.system.documents import ROOT
from tests.wheels import isolated_user_code, make_wheel

SCHEMA = {
    "rowKeyFields": [{"name": "key", "type": "LongType"}],
    "valueFields": [{"name": "n", "type": "LongType"}],
}
COMPACT_ALL = {
    "sleeper.table.compaction.strategy.class": "BasicCompactionStrategy",
    "sleeper.table.compaction.files.batch.size": "2",
}
RAISES = """
class Raises:
    def __init__(self, *_): ...
    def __call__(self, batches):
        for batch in batches:
            if batch.column(0)[0].as_py() == 0: raise RuntimeError("out of luck")
            yield batch

def never(files, settings): raise RuntimeError("cannot choose")
"""


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    create_instance(tmp_path / "here")
    with isolated_user_code(), closing(open_instance(tmp_path / "here")) as opened_instance:
        yield opened_instance


def make_table(instance: Instance, name: str, **properties: str) -> sleeper.Table:
    names = {k.replace("__", "."): v for k, v in properties.items()}
    opened_instance = sleeper.Instance(instance)
    table = opened_instance.create_table(name, SCHEMA, {**COMPACT_ALL, **names})
    for n in range(2):
        table.ingest(pa.table({"key": range(5), "n": [k * 10 + n for k in range(5)]}))
    return table


def report_rows(instance: Instance, kind: ReportKind, table: str | None = None) -> list[dict]:
    (listing,) = report(instance, kind, table)
    names = [column.name for column in listing.columns]
    return [dict(zip(names, row, strict=True)) for row in listing.rows]


def build_example(folder: Path) -> Path:
    """As `pip wheel` would, but without pip."""
    shutil.copytree(ROOT / "examples" / "user_code", folder / "project")
    program = "from setuptools.build_meta import build_wheel; print(build_wheel('.'))"
    process = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder / "project",
        capture_output=True,
        text=True,
        check=True,
    )
    return folder / "project" / process.stdout.splitlines()[-1]


def test_the_example_project_works_from_its_wheel_to_a_worker(
    instance: Instance, tmp_path: Path
) -> None:
    (wheel,) = add_wheels(instance, [build_example(tmp_path)])
    assert wheel.project == "sleeper-example"
    table = make_table(
        instance,
        "greatest",
        sleeper__table__iterator__class__name="GreatestOf",
        sleeper__table__iterator__config="n",
        sleeper__table__compaction__strategy__class="oldest_first",
    )
    expected = {"key": [0, 1, 2, 3, 4], "n": [1, 11, 21, 31, 41]}
    assert table.query().to_arrow().to_pydict() == expected
    status = run_instance(instance, until_idle=True, workers=1)
    assert (status.compactions_created, status.problems) == (1, ())
    (job,) = report_rows(instance, ReportKind.COMPACTION_JOBS)
    assert (job["state"], job["rows_written"]) == ("committed", 5)
    assert table.query().to_arrow().to_pydict() == expected
    assert table.query(columns=["key"], limit=2).to_arrow().to_pydict() == {"key": [0, 1]}
    assert sleeper.Instance(instance).sql(
        "SELECT sum(n) AS s FROM greatest"
    ).to_arrow().to_pydict() == {"s": [105]}
    least = table.query(iterator="AgeOffByField", iterator_config="n,0").to_arrow()
    assert least.num_rows == 0


def test_an_iterator_of_the_example_reads_another_table(instance: Instance, tmp_path: Path) -> None:
    """A query and a compaction look keys up in one copy, which their processes share."""
    add_wheels(instance, [build_example(tmp_path)])
    opened = sleeper.Instance(instance)
    blocked = opened.create_table("blocked", {"rowKeyFields": SCHEMA["valueFields"]})
    config = json.dumps(
        {
            "instance": instance.where,
            "table": "blocked",
            "path": str(tmp_path / "stores"),
            "field": "n",
        }
    )
    rows = make_table(instance, "rows")
    blocked.ingest(pa.table({"n": [10, 11, 41]}))
    found = rows.query(iterator="NotBlocked", iterator_config=config).to_arrow()
    assert found.column("n").to_pylist() == [0, 1, 20, 21, 30, 31, 40]
    blocked.ingest(pa.table({"n": [0]}))
    found = rows.query(iterator="NotBlocked", iterator_config=config).to_arrow()
    assert found.column("n").to_pylist() == [1, 20, 21, 30, 31, 40]
    set_table_properties(
        instance,
        "rows",
        {
            "sleeper.table.iterator.class.name": "NotBlocked",
            "sleeper.table.iterator.config": config,
        },
    )
    status = run_instance(instance, until_idle=True, workers=1)
    assert (status.compactions_created, status.problems) == (1, ())
    (job,) = report_rows(instance, ReportKind.COMPACTION_JOBS)
    assert (job["state"], job["rows_written"]) == ("committed", 6)
    # What the compaction removed stays away.
    blocked.delete(keys=[(10,), (11,)])
    set_table_properties(instance, "rows", {"sleeper.table.iterator.class.name": ""})
    left = rows.query().to_arrow().column("n").to_pylist()
    assert sorted(left) == [1, 20, 21, 30, 31, 40]
    sys.modules["sleeper_example.not_blocked"]._open_store(config).close()


def test_a_failing_iterator_loses_no_rows_and_stops_no_other_table(
    instance: Instance, tmp_path: Path
) -> None:
    points = {
        "iterators": {"Raises": "my_code_bad:Raises"},
        "strategies": {"never": "my_code_bad:never"},
    }
    add_wheels(instance, [make_wheel(tmp_path, "my_code_bad", {"my_code_bad": RAISES}, **points)])
    bad = make_table(instance, "bad", sleeper__table__iterator__class__name="Raises")
    chosen = make_table(instance, "undecided", sleeper__table__compaction__strategy__class="never")
    good = make_table(instance, "good")
    status = run_instance(instance, until_idle=True, workers=1)
    (problem,) = (p for p in status.problems if "undecided" in p)
    assert problem.endswith("strategy 'never' on partition root: RuntimeError: cannot choose")
    jobs = {job["table"]: job for job in report_rows(instance, ReportKind.COMPACTION_JOBS)}
    assert (jobs["good"]["state"], jobs["bad"]["state"]) == ("committed", "failed")
    assert "undecided" not in jobs
    reason = "iterator 'Raises' on table 'bad' at key (0): RuntimeError: out of luck"
    assert reason in str(jobs["bad"]["reason"])
    # As often as the queue allows, then a person has to look.
    (letter,) = report_rows(instance, ReportKind.DEAD_LETTERS)
    assert (letter["queue"], letter["receives"]) == ("compaction", 3)
    for table in (chosen, good):
        assert table.query().to_arrow().num_rows == 10
    set_table_properties(instance, "bad", {"sleeper.table.iterator.class.name": ""})
    assert bad.query().to_arrow().num_rows == 10
    assert run_instance(instance, until_idle=True, workers=1).compactions_created == 1
    assert {job["state"] for job in report_rows(instance, ReportKind.COMPACTION_JOBS, "bad")} == {
        "failed",
        "committed",
    }
    assert bad.query().to_arrow().num_rows == 10
