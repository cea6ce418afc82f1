"""Instances that are opened read-only: all can be read, and nothing in the folder changes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper import READ_ONLY_VARIABLE
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.local.holds import HOLDS_FILE, READERS_FOLDER
from sleeper.local.instance import open_local_instance
from tests.servers.serving import serving
from tests.system.test_read_only_folder import close_folder, drop_privileges

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "StringType"}],
    "valueFields": [{"name": "n", "type": "IntType"}],
}
COUNT = ("sql", "SELECT count(*) AS n FROM rows", "--format", "json")
READS = (
    ("table", "list"),
    ("table", "show", "rows"),
    ("report", "all"),
    ("query", "rows", "--key", "a"),
    ("query", "rows"),
    COUNT,
    ("changes", "rows", "--from", "0"),
)
PROGRAM = """
import json, sys
from typer.testing import CliRunner
from sleeper.cli.main import app
results = []
for command in json.loads(sys.argv[2]):
    result = CliRunner().invoke(app, ["--instance", sys.argv[1], "--read-only", *command])
    results.append([result.exit_code, result.stdout, result.stderr])
print(json.dumps(results))
"""
REFUSAL = "the instance is open read-only"


def rows_of(*keys: str) -> pa.Table:
    return pa.table({"k": list(keys), "n": pa.array(range(len(keys)), pa.int32())})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An instance with a table of two leaves: a read of all takes a hold where it can."""
    folder = tmp_path / "instance"
    with sleeper.create_instance(folder) as instance:
        table = instance.create_table("rows", SCHEMA, split_points=["m"])
        table.ingest(rows_of("a", "z"))
    return folder


def look(folder: Path) -> list[tuple[str, int, int]]:
    """Returns the names, sizes and times of all files and folders."""
    found = [(path, path.stat()) for path in sorted(folder.rglob("*"))]
    return [(str(path), status.st_size, status.st_mtime_ns) for path, status in found]


def run(
    folder: Path, *commands: tuple[str, ...], before: Callable[[], None] | None = None
) -> list[tuple[int, str, str]]:
    """Runs commands in one process; returns the exit status, output and messages of each."""
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), json.dumps(commands)],
        capture_output=True,
        text=True,
        preexec_fn=before,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return [tuple(result) for result in json.loads(process.stdout)]


def test_reads_change_nothing_while_another_process_writes(folder: Path) -> None:
    with sleeper.open_instance(folder) as writer:
        writer.table("rows").ingest(rows_of("b"))
        before = look(folder)
        results = dict(zip(READS, run(folder, *READS), strict=True))
        assert look(folder) == before
    for command, (status, _, messages) in results.items():
        assert status == 0, (command, messages)
        assert "could not" not in messages
    assert json.loads(results[COUNT][1]) == {"n": 3}


def test_reads_work_in_a_folder_without_write_access(folder: Path) -> None:
    readers = folder / READERS_FOLDER
    readers.mkdir()
    close_folder(folder)
    try:
        for mode in (0o555, 0o777):
            readers.chmod(mode)
            results = run(folder, *READS, before=drop_privileges)
            for command, result in zip(READS, results, strict=True):
                assert result[0] == 0, (command, result)
                assert "without a hold" not in result[2]
            assert (readers / HOLDS_FILE).exists() == (mode == 0o777)
    finally:
        close_folder(folder, is_open=True)


def test_one_reader_sees_each_commit_of_a_writer(folder: Path) -> None:
    with (
        sleeper.open_instance(folder, read_only=True) as reader,
        sleeper.open_instance(folder) as writer,
    ):
        for number in range(3):
            assert reader.table("rows").query().to_arrow().num_rows == 2 + number
            writer.table("rows").ingest(rows_of(f"b{number}"))


def test_commands_that_change_the_instance_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "more.jsonl").write_text('{"k": "b", "n": 1}\n')
    (tmp_path / "more.schema.json").write_text(json.dumps(SCHEMA))
    before = look(folder)
    changes = (
        ("ingest", "rows", str(tmp_path / "more.jsonl")),
        ("ingest", "rows", str(tmp_path / "more.jsonl"), "--submit"),
        ("delete", "rows", "--key", "a"),
        ("table", "delete", "rows", "--yes"),
        ("table", "create", "more", "--schema", str(tmp_path / "more.schema.json")),
        ("instance", "set", "sleeper.local.workers=1"),
        ("run", "--until-idle"),
    )
    for command, (status, _, messages) in zip(changes, run(folder, *changes), strict=True):
        assert status == 1, (command, messages)
        assert REFUSAL in messages, command
    assert look(folder) == before


def test_changes_in_python_are_refused(folder: Path) -> None:
    before = look(folder)
    with sleeper.open_instance(folder, read_only=True) as instance:
        table = instance.table("rows")
        changes: list[Callable[[], object]] = [
            lambda: table.ingest(rows_of("b")),
            lambda: table.delete(keys=[["a"]]),
            lambda: instance.create_table("more", SCHEMA),
            lambda: instance.delete_table("rows"),
            lambda: instance.run_until_idle(workers=1),
        ]
        for change in changes:
            with pytest.raises(InvalidRequestError, match=REFUSAL):
                change()
    assert look(folder) == before


def test_a_server_reads_and_refuses_changes(folder: Path) -> None:
    instance = open_local_instance(folder, read_only=True)
    before = look(folder)
    try:
        with serving(instance) as server:
            counted = server.rows("/sql", {"statement": "SELECT count(*) AS n FROM rows"})
            refused = server.post("/tables/rows/delete", {"all": True})
    finally:
        instance.close()
    assert counted == [{"n": 2}]
    assert refused.status_code == 403
    assert "the server is read-only" in refused.json()["reason"]
    assert look(folder) == before


def test_the_environment_opens_instances_read_only(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(READ_ONLY_VARIABLE, "true")
    with (
        sleeper.open_instance(folder) as instance,
        pytest.raises(InvalidRequestError, match=REFUSAL),
    ):
        instance.table("rows").ingest(rows_of("b"))
    with pytest.raises(InvalidRequestError, match=REFUSAL):
        sleeper.create_instance(tmp_path / "other")
    assert not (tmp_path / "other").exists()
    monkeypatch.setenv(READ_ONLY_VARIABLE, "perhaps")
    with pytest.raises(InvalidRequestError, match="invalid SLEEPER_READ_ONLY: 'perhaps'"):
        sleeper.open_instance(folder)


def test_an_instance_on_aws_cannot_be_opened_read_only() -> None:
    with pytest.raises(InvalidRequestError, match="a role that may only read"):
        sleeper.open_instance("aws:test", read_only=True)


def test_changes_that_were_never_applied_are_named(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with sleeper.open_instance(folder) as writer:
        writer.table("rows").ingest(rows_of("b"))
        subprocess.run(["cp", "-r", folder, copy], check=True)
    os.unlink(copy / "instance.db-shm")
    with pytest.raises(UnavailableError, match="its -shm file is missing"):
        sleeper.open_instance(copy, read_only=True)
