import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from sleeper import INSTANCE_VARIABLE, __version__
from sleeper.cli import output
from sleeper.cli.docs import generate_page
from sleeper.cli.main import app
from tests.child_processes import python_path
from tests.unit.cli.conftest import Sleeper

ROOT = Path(__file__).parents[3]


def test_version_option_prints_the_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"sleeper {__version__}\n")


def test_help_option_prints_the_usage() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "Usage" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--no-such-option"],
        ["no-such-noun"],
        ["table", "create", "a"],
        ["table", "create", "a", "--schema", "s.json", "--set", "no equals sign"],
        ["table", "set", "a", "=value"],
        ["table", "set", "a", "b=1", "b=2"],
        ["report", "no-such-report"],
        ["report", "files", "--limit", "0"],
        ["query", "a", "--limit", "-1"],
        ["query", "a", "--format", "xml"],
        ["ingest", "a"],
        ["ingest", "a", "file.csv", "--submit", "--rejects", "r"],
    ],
)
def test_invalid_command_lines_exit_with_status_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: ")


def test_missing_instance_error_names_the_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SLEEPER_INSTANCE", raising=False)
    result = CliRunner().invoke(app, ["table", "list"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "error: no instance specified: pass --instance with a folder or aws:INSTANCE_ID, "
        "or set SLEEPER_INSTANCE\n"
    )


def test_instance_option_overrides_the_variable(sleeper: Sleeper, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert sleeper("--instance", other, "instance", "create").status == 0
    (row,) = sleeper("--instance", other, "instance", "show", "--output", "json").rows
    assert (row["property"], row["value"]) == ("sleeper.id", "other")


def test_unexpected_errors_print_one_line(
    sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    _break(monkeypatch, ZeroDivisionError("of\nnothing"))
    result = sleeper("table", "list")
    assert (result.status, result.stdout) == (1, "")
    assert result.stderr == (
        "error: unexpected ZeroDivisionError: of nothing (set SLEEPER_DEBUG=1 for a traceback)\n"
    )


def test_debug_mode_raises_errors(sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch, ZeroDivisionError("of nothing"))
    monkeypatch.setenv("SLEEPER_DEBUG", "1")
    result = CliRunner().invoke(app, ["table", "list"])
    assert isinstance(result.exception, ZeroDivisionError)


def test_interrupts_exit_with_status_130(sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch, KeyboardInterrupt())
    result = sleeper("table", "list")
    assert (result.status, result.stdout, result.stderr) == (130, "", "interrupted\n")


def test_closed_pipes_exit_with_status_0(sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch, BrokenPipeError(32, "broken pipe"))
    result = sleeper("table", "list")
    assert (result.status, result.stderr) == (0, "")


def _break(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(output, "print_listings", fail)


@pytest.mark.parametrize(
    "command",
    [
        ["table", "create"],
        ["ingest"],
        ["query"],
        ["sql"],
        ["run"],
        ["compact"],
        ["split"],
        ["gc"],
        ["report"],
        ["dead-letters", "redrive"],
    ],
)
def test_examples_in_help_use_the_command(command: list[str]) -> None:
    text = CliRunner().invoke(app, [*command, "--help"]).stdout
    _, result, examples = text.partition("Example")
    assert result
    assert f"sleeper {' '.join(command)}" in examples


def run_program(program: str, instance: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": python_path(ROOT / "core"), "SLEEPER_INSTANCE": str(instance)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_plain_arguments_do_not_import_pydantic(cities: Sleeper, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from sleeper.cli.main import app\n"
        "try:\n"
        "    app(['query', 'cities', '--key', 'nowhere', '--limit', '3', '--format', 'csv'])\n"
        "except SystemExit as exit:\n"
        "    assert exit.code == 0\n"
        "sys.exit(' '.join({'pydantic', 'psutil', 'datafusion'} & sys.modules.keys()) or 0)\n"
    )
    process = run_program(program, tmp_path / "here")
    assert process.returncode == 0, process.stderr
    assert process.stdout == '"city","year","people"\n'


def test_control_plane_commands_load_no_data_library(cities: Sleeper, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from sleeper.cli.main import app\n"
        "for line in (['table', 'list'], ['table', 'show', 'cities'], ['report', 'all'],\n"
        "             ['table', 'set', 'cities', 'sleeper.table.gc.delay.minutes=2']):\n"
        "    try:\n"
        "        app(line)\n"
        "    except SystemExit as exit:\n"
        "        assert exit.code == 0\n"
        "sys.exit(' '.join({'pyarrow', 'datafusion', 'pandas'} & sys.modules.keys()) or 0)\n"
    )
    process = run_program(program, tmp_path / "here")
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.slow
def test_commands_that_print_rows_do_not_load_pandas(tmp_path: Path) -> None:
    """It takes longer to load than a lookup."""
    primitive = ("Timestamp", "Date", "ByteArray", "String", "Long", "Double", "Boolean")
    values = [{"name": each.lower(), "type": f"{each}Type"} for each in primitive]
    values.append({"name": "decimal", "type": {"DecimalType": {"precision": 9, "scale": 2}}})
    kinds = {"keyType": "StringType", "valueType": "LongType"}
    values.append({"name": "map", "type": {"MapType": kinds}})
    values.append({"name": "list", "type": {"ListType": {"elementType": "StringType"}}})
    key = [{"name": "id", "type": "TimestampType"}]
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"rowKeyFields": key, "valueFields": values}))
    rows = tmp_path / "rows.jsonl"
    time = "2026-03-01T06:00:00Z"
    row = {"timestamp": time, "date": "2026-03-01", "bytearray": "AAA=", "string": "a", "long": 1}
    row |= {"double": 1.5, "boolean": True, "decimal": "1.25", "list": ["a"], "map": {}}
    rows.write_text(json.dumps({"id": time, **row}) + "\n")
    lines = [
        ["instance", "create"],
        ["table", "create", "t", "--schema", str(schema)],
        ["ingest", "t", str(rows)],
        *(["query", "t", "--key", time, "--format", each] for each in ("table", "csv", "json")),
        ["query", "t", "--limit", "1"],
        ["sql", "SELECT * FROM t ORDER BY id"],
        ["sql", "SELECT id, long + 1 AS n FROM t WHERE long > 0", "--format", "json"],
        ["changes", "t"],
        ["delete", "t", "--key", time],
    ]
    program = (
        "import atexit, os, sys\n"
        "from sleeper.cli.main import main\n"
        "printing = {'query', 'sql', 'changes', 'delete'}\n"
        "def check():\n"
        "    if sys.argv[1] in printing and 'pandas' in sys.modules: print('pandas', sys.argv)\n"
        "atexit.register(check)\n"
        f"for line in {lines!r}:\n"
        "    sys.argv = ['sleeper', *line]\n"
        "    if (child := os.fork()) == 0:\n"
        "        main()\n"
        "    assert os.waitpid(child, 0)[1] == 0, line\n"
    )
    environment = {**os.environ, INSTANCE_VARIABLE: str(tmp_path / "i")}
    environment.pop("PYTHONPATH", None)
    process = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    assert "AAA=" in process.stdout
    assert "pandas [" not in process.stdout


@pytest.mark.slow
def test_datafusion_still_loads_pandas() -> None:
    """If this fails, sleeper.cli.startup has nothing left to do."""
    program = "import sys, datafusion; sys.exit('pandas' in sys.modules)"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    assert subprocess.run([sys.executable, "-c", program], env=environment).returncode == 1


def test_a_command_of_the_engine_ends_without_a_finalization(
    cities: Sleeper, tmp_path: Path
) -> None:
    """Threads of the engine may still run then, and would abort the process."""
    program = (
        "import atexit, sys, threading, time\n"
        "from sleeper.cli.main import main\n"
        "class Late:\n"
        "    def __del__(self):\n"
        "        print('finalized')\n"
        "sys.late = Late()\n"
        "atexit.register(print, 'at exit')\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\n"
        "sys.argv = ['sleeper', 'sql', 'SELECT count(*) AS n FROM cities', '--format', 'json']\n"
        "main()\n"
    )
    process = run_program(program, tmp_path / "here")
    assert process.returncode == 0, process.stderr
    assert [json.loads(line).keys() for line in process.stdout.splitlines()[:1]] == [{"n"}]
    assert process.stdout.splitlines()[1:] == ["thread", "at exit"]


@pytest.mark.generated
def test_commands_page_is_current() -> None:
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == generate_page()


def test_instance_get_prints_a_property(sleeper: Sleeper) -> None:
    assert sleeper("instance", "get", "sleeper.id").stdout == "me\n"
    assert sleeper("instance", "get", "sleeper.vpc").stdout == "\n"
    assert "is a table property" in sleeper("instance", "get", "sleeper.table.name").stderr
    assert "is not a property" in sleeper("instance", "get", "sleeper.vcp").stderr


def test_pause_and_resume_reject_local_instances(sleeper: Sleeper) -> None:
    for command in ("pause", "resume"):
        result = sleeper(command)
        assert (result.status, result.stdout) == (1, "")
        assert "a local instance has no schedules" in result.stderr


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("sleeper qu", {"query", "queries"}),
        ("sleeper query ci", {"cities"}),
        ("sleeper report files --table ", {"cities"}),
        ("sleeper --instance nowhere query c", set()),
        ("sleeper --instance aws:me query c", set()),
        ("sleeper table get cities sleeper.table.gc", {"sleeper.table.gc.delay.minutes"}),
        ("sleeper instance set sleeper.local.w", {"sleeper.local.workers"}),
        ("sleeper table rename ci", {"cities"}),
        ("sleeper table create ci", set()),
    ],
)
def test_completion_of_commands_tables_and_properties(
    cities: Sleeper, monkeypatch: pytest.MonkeyPatch, typed: str, completed: set[str]
) -> None:
    monkeypatch.setenv("_SLEEPER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    result = CliRunner().invoke(app, [], prog_name="sleeper")
    assert set(result.stdout.split()) == completed


def test_the_help_imports_no_command(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "import sleeper\n"
        "assert not sys.modules.keys() & {'typer', 'pyarrow', 'boto3'}\n"
        "from sleeper.cli.main import main\n"
        "sys.argv = ['sleeper', '--help']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as exit:\n"
        "    assert exit.code == 0\n"
        "heavy = {'pyarrow', 'datafusion', 'boto3', 'rich', 'sleeper.instance', 'numpy'}\n"
        "commands = {name for name in sys.modules if name.startswith('sleeper.cli.')}\n"
        "light = {'sleeper.cli.main', 'sleeper.cli.output', 'sleeper.cli.arguments'}\n"
        "sys.exit(' '.join(heavy & sys.modules.keys() | commands - light) or 0)\n"
    )
    process = run_program(program, tmp_path)
    assert (process.returncode, process.stderr) == (0, "")
    assert "ingest" in process.stdout


def test_summaries_are_those_of_the_commands() -> None:
    root: Any = typer.main.get_command(app)
    for name, listed in root.commands.items():
        command = root.get_command(None, name)
        assert command.name == name
        assert listed.get_short_help_str(1000) == command.get_short_help_str(1000)
        assert command.hidden is False


@pytest.mark.parametrize(
    "arguments",
    [
        ("--instance", "WHERE", "table", "list"),
        ("table", "--instance", "WHERE", "list"),
        ("table", "list", "--instance", "WHERE"),
        ("--instance", "elsewhere", "table", "list", "--instance=WHERE"),
    ],
)
def test_the_instance_option_is_accepted_at_every_level(
    cities: Sleeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("SLEEPER_INSTANCE", str(tmp_path / "nowhere"))
    where = str(tmp_path / "here")
    result = cities(*(each.replace("WHERE", where) for each in arguments))
    assert (result.status, "cities" in result.stdout) == (0, True), result.stderr


def test_the_instance_option_follows_a_single_command(cities: Sleeper, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert cities("instance", "create", "--instance", other).status == 0
    assert cities("query", "cities", "--key", "Oslo").status == 0
    result = cities("query", "cities", "--instance", other, "--key", "Oslo")
    assert (result.status, "cities" in result.stderr) == (1, True)


def test_every_command_accepts_the_instance_option_and_the_help_shows_it_once() -> None:
    def count(command: Any) -> None:
        options = [each for each in command.params if "--instance" in each.opts]
        assert len(options) == 1, command.name
        for name in getattr(command, "commands", {}):
            count(command.get_command(None, name))

    count(typer.main.get_command(app))
    assert generate_page().count("--instance WHERE") == 1
