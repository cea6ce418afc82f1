"""`sleeper table add-field` and the other commands for fields."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sleeper
from sleeper.cli.main import app

SCHEMA = {
    "rowKeyFields": [{"name": "key", "type": "LongType"}],
    "valueFields": [{"name": "a", "type": "IntType"}, {"name": "b", "type": "StringType"}],
}


@pytest.fixture
def where(tmp_path: Path) -> str:
    with sleeper.create_instance(tmp_path / "instance") as instance:
        instance.create_table("rows", SCHEMA)
    return str(tmp_path / "instance")


def run(where: str, arguments: Sequence[str], status: int = 0) -> str:
    result = CliRunner().invoke(app, ["--instance", where, "table", *arguments])
    assert result.exit_code == status, result.output
    return result.stderr


def test_fields_are_changed(where: str) -> None:
    added = ["add-field", "rows", "c", "DecimalType(4,2)", "--default", "1.5", "--after", "a"]
    assert run(where, [*added, "--id", "mine"]) == (
        "added field c to rows: transaction 2 (change mine)\n"
    )
    assert run(where, [*added, "--id", "mine"]) == "change mine is already done: transaction 2\n"
    assert run(where, ["rename-field", "rows", "a", "x"]).startswith("renamed field a of rows to x")
    assert "to LongType: transaction 4" in run(where, ["widen-field", "rows", "x", "LongType"])
    assert "transaction 5" in run(where, ["order-fields", "rows", "c", "b", "x"])
    assert "nothing to change" in run(where, ["order-fields", "rows", "c", "b", "x"])
    assert "dropped field b of rows: transaction 6" in run(where, ["drop-field", "rows", "b"])
    with sleeper.open_instance(where) as instance:
        values = instance.table("rows").schema.values
    assert [(each.name, each.default) for each in values] == [("c", "1.50"), ("x", None)]


def test_a_refused_change_states_its_reason(where: str) -> None:
    assert "default '1.555' does not fit DecimalType(4,2)" in run(
        where, ["add-field", "rows", "c", "DecimalType(4,2)", "--default", "1.555"], 1
    )
    assert "'key' cannot be dropped: it is a key field" in run(
        where, ["drop-field", "rows", "key"], 1
    )
