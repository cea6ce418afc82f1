"""The demo of snapshot tables: a snapshot loses the rows that the database loses."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from demo.snapshots import STEPS, prepare_airlines, take_step
from sleeper.cli.main import app
from tests.servers.postgres import Postgres

SCHEMA = Path(__file__).parents[2] / "demo" / "schemas" / "airlines.json"


def test_only_the_snapshot_table_loses_the_rows_that_the_database_loses(
    postgres_database: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = tmp_path / "instance"
    monkeypatch.setenv("SLEEPER_INSTANCE", str(instance))
    monkeypatch.setenv("DEMO_PASSWORD", postgres_database.password)

    def run(*arguments: str) -> None:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output

    run("instance", "create")
    prepare_airlines(postgres_database, SCHEMA, run)
    copies = [take_step(step, postgres_database, instance, run) for step in STEPS]
    assert [len(each.source) for each in copies] == [4, 5, 4, 5]
    assert all(each.snapshot == each.source for each in copies)
    assert all(each.table_sink == each.source for each in copies[:2])
    assert all(each.table_sink == each.source | {"US": "US Airways"} for each in copies[2:])
