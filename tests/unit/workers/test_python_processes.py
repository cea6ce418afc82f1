"""Child processes import Python from where it is installed, never from the current folder."""

import re
from pathlib import Path

import pytest

from sleeper.local.instance import create_local_instance
from sleeper.query.result import TimeLimit
from sleeper.serve.sql_processes import SqlProcesses
from sleeper.workers import pool as pools
from sleeper.workers.pool import WorkerPool

_ROOT = Path(__file__).parents[3]
_MODULE_RUN = re.compile(r'sys\.executable,\s*"-m"')


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An instance, beside which the current folder has a module of a common name."""
    create_local_instance(tmp_path / "instance", "test", {})
    current = tmp_path / "current"
    current.mkdir()
    text = (
        f"import os, pathlib\npathlib.Path({str(tmp_path / 'imported')!r}).touch()\nos._exit(9)\n"
    )
    (current / "json.py").write_text(text)
    monkeypatch.chdir(current)
    return tmp_path


def test_workers_do_not_import_from_the_current_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "_STOP_SECONDS", 60.0)
    pool = WorkerPool(folder / "instance", 1)
    pool.keep_up(lambda: 0)
    (worker,) = pool._workers
    pool.stop()
    assert not (folder / "imported").exists()
    assert worker.process.returncode == 0


def test_processes_of_statements_do_not_import_from_the_current_folder(folder: Path) -> None:
    processes = SqlProcesses(str(folder / "instance"), 10**9)
    try:
        with_rows = processes.open("SELECT 1 AS one", TimeLimit(), "local")
        assert [batch.num_rows for batch in with_rows] == [1]
    finally:
        processes.close()
    assert not (folder / "imported").exists()


def test_every_module_that_is_run_has_a_safe_path() -> None:
    for folder in ("core", "lambdas", "containers", "stacks"):
        for file in (_ROOT / folder).rglob("*.py"):
            assert not _MODULE_RUN.search(file.read_text()), f"{file}: add -P before -m"
