"""Start-up: the processor time of commands as whole processes."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measuring import Watch
from benchmarks.result import Aim, Result, check, figure
from benchmarks.settings import Settings

ROWS = 1000
_RUNS = 7
_SCHEMA = (
    '{"rowKeyFields": [{"name": "key", "type": "IntType"}], "sortKeyFields": [],'
    ' "valueFields": [{"name": "value", "type": "StringType"}]}'
)
# Processor seconds.
_HELP_AIM, _QUERY_AIM, _IMPORT_AIM = 0.25, 0.6, 0.2


def measure(settings: Settings) -> Result:
    rows = settings.rows or ROWS
    folder = settings.folder / "start-up"
    sleeper = str(Path(sysconfig.get_path("scripts")) / "sleeper")
    _make_instance(folder, sleeper, rows)
    query = [sleeper, "query", "rows", "--key", str(rows // 2), "--format", "csv"]
    commands = {
        "import sleeper": ([sys.executable, "-c", "import sleeper"], _IMPORT_AIM),
        "sleeper --help": ([sleeper, "--help"], _HELP_AIM),
        "sleeper query of one key": (query, _QUERY_AIM),
        "Python alone": ([sys.executable, "-c", ""], None),
        "import pyarrow": ([sys.executable, "-c", "import pyarrow"], None),
        "import datafusion": ([sys.executable, "-c", "import datafusion"], None),
    }
    git = shutil.which("git")
    if git is not None:
        commands["git --version"] = ([git, "--version"], None)
    answer = _run(query, folder).splitlines()[1:]
    check(answer == [f'{rows // 2},"value {rows // 2}"'], f"the answer is {answer}")
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(max(settings.repeats, _RUNS)):
        for name, (command, _) in commands.items():
            watch = Watch()
            with watch:
                _run(command, folder)
            seconds[name].append(watch.cpu_seconds)
    figures = [
        figure(name, seconds[name], "s", None if aim is None else Aim(aim, is_most=True))
        for name, (_, aim) in commands.items()
    ]
    work = (
        f"Processor time of whole processes, their files in the page cache. The query is of one key"
        f" of a local table of {rows:,} rows."
    )
    notes = (
        "Where pandas is installed, Arrow imports it with the first conversion of a Python value,"
        " also while DataFusion is imported. A query of one key imports neither.",
    )
    return Result("start-up", work, tuple(figures), (), notes)


def _make_instance(folder: Path, sleeper: str, rows: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    schema, content = folder / "schema.json", folder / "rows.csv"
    schema.write_text(_SCHEMA)
    content.write_text("key,value\n" + "".join(f"{n},value {n}\n" for n in range(rows)))
    _run([sleeper, "instance", "create"], folder)
    _run([sleeper, "table", "create", "rows", "--schema", str(schema)], folder)
    _run([sleeper, "ingest", "rows", str(content)], folder)


def _run(command: Sequence[str], folder: Path) -> str:
    """Returns the standard output of a command."""
    environment = {**os.environ, "SLEEPER_INSTANCE": str(folder / "instance")}
    # Installed packages have compiled modules, which the first run writes.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(
        command, env=environment, check=True, text=True, capture_output=True
    ).stdout
