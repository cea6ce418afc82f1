"""`sleeper adapter`: what it prints, and its exit statuses."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import SCHEMA, Sleeper


@pytest.fixture
def here(tmp_path: Path, sleeper: Sleeper) -> Path:
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "a.csv").write_text("city,year,people\nParis,2020,5\n")
    for name in ("cities", "copy"):
        made = sleeper(
            *("table", "create", name, "--schema", tmp_path / "schema.json"),
            *("--set", "sleeper.table.type=snapshot"),
        )
        assert made.status == 0
    return tmp_path


def test_an_adapter_is_created_run_shown_and_deleted(sleeper: Sleeper, here: Path) -> None:
    made = sleeper("adapter", "create", "nightly", "--source", here / "a.csv", "--sink", "cities")
    assert (made.status, made.stdout) == (0, "")
    assert made.stderr == f"created adapter nightly: {here / 'a.csv'} -> cities\n"
    for expected in ("1 row in 1 file into cities: transaction 3, ", "was already committed by"):
        ran = sleeper("adapter", "run", "nightly", "--run-id", "one")
        assert (ran.status, ran.stdout) == (0, "")
        assert expected in ran.stderr
        assert "job adapter-nightly:one" in ran.stderr
    unnamed = sleeper("adapter", "run", "nightly", "--run-id", "")
    assert (unnamed.status, unnamed.stderr.partition(" (")[0]) == (1, "error: run id '' is invalid")
    (listed,) = sleeper("adapter", "list", "--output", "json").rows
    assert (listed["adapter"], listed["state"], listed["rows"]) == ("nightly", "committed", 1)
    definition, run = sleeper("adapter", "show", "nightly", "--output", "json").rows
    assert definition["source"] == {"type": "files", "paths": [str(here / "a.csv")]}
    assert (run["run"], run["version"], run["source"]) == ("one", 3, str(here / "a.csv"))
    text = sleeper("adapter", "show", "nightly", "--limit", "0").stdout
    assert f"  source.paths: {here / 'a.csv'}\n" in text
    mapped = ("--column", "people=year", "--column", "year=people", "--constant", "city=Oslo")
    options = ("--source", here / "a.csv", "--sink", "copy", *mapped)
    refused = sleeper("adapter", "create", "mapped", *options)
    assert "error: all row keys are constants: city" in refused.stderr
    assert sleeper("adapter", "create", "mapped", *options[:-2]).status == 0
    text = sleeper("adapter", "show", "mapped").stdout
    assert "  columns.people: year\n  columns.year: people\n" in text
    assert sleeper("adapter", "delete", "nightly").stderr == "deleted adapter nightly\n"
    gone = sleeper("adapter", "run", "nightly")
    assert (gone.status, gone.stderr) == (1, "error: adapter 'nightly' does not exist\n")


def test_a_failure_names_its_cause_and_the_command_that_repeats_the_run(
    sleeper: Sleeper, here: Path
) -> None:
    source = ("--source", "postgresql://me@127.0.0.1:1/shop", "--table", "orders")
    refused = sleeper("adapter", "create", "away", *source, "--sink", "cities")
    assert refused.status == 1
    assert "postgresql://127.0.0.1:1/shop: cannot connect: " in refused.stderr
    assert (
        sleeper("adapter", "create", "away", *source, "--sink", "cities", "--no-check").status == 0
    )
    failed = sleeper("adapter", "run", "away", "--run-id", "r1")
    assert failed.status == 1
    first, second = failed.stderr.splitlines()
    assert first.endswith("run: sleeper adapter run away --run-id r1")
    assert second.startswith("error: postgresql://127.0.0.1:1/shop: cannot connect: ")


def test_a_password_is_never_printed(sleeper: Sleeper, here: Path) -> None:
    url = "postgresql://me:hunter2@127.0.0.1:1/shop"
    made = sleeper("adapter", "create", "x", "--source", url, "--table", "t", "--sink", "cities")
    assert made.status == 1
    assert "name the secret with --password env:NAME" in made.stderr
    assert "hunter2" not in made.stderr + made.stdout


def test_a_database_without_verified_tls_is_refused_unless_that_is_said(
    sleeper: Sleeper, here: Path
) -> None:
    url = "postgresql://me@db.example/shop?sslmode=require"
    create = ("adapter", "create", "away", "--table", "orders", "--sink", "cities", "--no-check")
    refused = sleeper(*create, "--source", url)
    assert (refused.status, refused.stderr) == (
        1,
        "error: postgresql://db.example/shop orders: parameter sslmode=require connects to "
        "db.example without TLS that verifies the server (expected sslmode=verify-full, or "
        "insecure=true)\n",
    )
    assert sleeper(*create, "--source", f"{url}&insecure=true").status == 0
    (listed,) = sleeper("adapter", "list", "--output", "json").rows
    assert listed["source"] == "postgresql://db.example/shop orders (insecure)"
    # A definition of an earlier version is refused when it runs.
    stored = here / "here" / "adapters" / "away.json"
    stored.write_text(stored.read_text().replace("&insecure=true", ""))
    ran = sleeper("adapter", "run", "away")
    assert ran.status == 1
    assert "parameter sslmode=require connects to db.example without TLS" in ran.stderr
    assert sleeper("adapter", "list").status == 0
