"""`sleeper code`, and properties that name registered code."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Sleeper
from tests.wheels import ITERATOR_HEAD, isolated_user_code, make_wheel

ITERATOR = "sleeper.table.iterator.class.name"
CONFIG = "sleeper.table.iterator.config"
STRATEGY = "sleeper.table.compaction.strategy.class"


@pytest.fixture(autouse=True)
def no_loaded_code() -> Iterator[None]:
    with isolated_user_code():
        yield


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    source = ITERATOR_HEAD.replace(
        "self.schema, self.row_key",
        'if config == "bad": raise ValueError("never say bad")\n        self.schema, self.row_key',
    )
    return make_wheel(
        tmp_path / "dist",
        modules={"my_code": source, "my_code_pick": "def pick(files, settings): return []"},
        iterators={"Mine": "my_code:Whole"},
        strategies={"pick": "my_code_pick:pick"},
    )


def test_code_add_list_and_remove(sleeper: Sleeper, wheel: Path) -> None:
    result = sleeper("code", "add", wheel, "--output", "json")
    assert (result.status, result.stderr) == (0, "added my_code-1.0-py3-none-any.whl\n")
    rows = [row for row in result.rows if row["wheel"] is not None]
    assert [(r["name"], r["kind"], r["object"]) for r in rows] == [
        ("Mine", "iterator", "my_code:Whole"),
        ("pick", "compaction strategy", "my_code_pick:pick"),
    ]
    assert {r["name"] for r in sleeper("code", "list", "-o", "json").rows} > {"SumByKey", "Mine"}
    assert "2 names in 1 wheel, 7 built in" in sleeper("code", "list").stdout
    assert sleeper("code", "remove", "my_code").stderr == "removed my_code-1.0-py3-none-any.whl\n"
    assert sleeper("code", "remove", "my_code").stderr == (
        "error: unknown wheel 'my_code' (expected one of: none)\n"
    )


def test_code_add_rejects_invalid_wheels(sleeper: Sleeper, tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_text("")
    result = sleeper("code", "add", tmp_path / "x.whl")
    assert result.status == 1
    assert "error: x.whl is not a valid name of a wheel" in result.stderr


def test_code_remove_deletes_invalid_wheels(sleeper: Sleeper, tmp_path: Path) -> None:
    file = tmp_path / "here" / "code" / "my_code-1.0-py3-none-any.whl"
    file.parent.mkdir()
    file.write_text("put here by hand")
    assert sleeper("code", "remove", file.name).status == 0
    assert not file.exists()


def test_table_set_checks_iterators_and_strategies(cities: Sleeper, wheel: Path) -> None:
    def run_refused(*settings: str) -> str:
        result = cities("table", "set", "cities", *settings)
        assert result.status == 1
        return result.stderr

    assert "no iterator 'Mine' is registered (expected one of Age" in run_refused(
        f"{ITERATOR}=Mine"
    )
    assert cities("code", "add", wheel).status == 0
    assert "iterator 'Mine': never say bad" in run_refused(f"{ITERATOR}=Mine", f"{CONFIG}=bad")
    assert "config 'x' is given without a name" in run_refused(f"{CONFIG}=x")
    assert "field 'people'" not in run_refused(f"{ITERATOR}=SumByKey", f"{CONFIG}=x")
    assert "no compaction strategy 'Mine'" in run_refused(f"{STRATEGY}=Mine")
    assert "cannot be 'os:system'" in run_refused(f"{ITERATOR}=os:system")
    result = cities("table", "set", "cities", f"{ITERATOR}=com.example.Mine", f"{CONFIG}=good")
    assert result.status == 0
    assert cities("table", "get", "cities", ITERATOR).stdout == "Mine\n"
    assert "never say bad" in run_refused(f"{CONFIG}=bad")
    assert cities("table", "set", "cities", f"{STRATEGY}=pick").status == 0
    assert "ageOff(people): a table with an iterator can filter by key fields only" in run_refused(
        "sleeper.table.filters=ageOff(people,1)"
    )


def test_code_remove_rejects_wheels_in_use(cities: Sleeper, wheel: Path) -> None:
    cities("code", "add", wheel)
    for setting, unset in (
        (f"{ITERATOR}=Mine", f"{ITERATOR}="),
        (f"{STRATEGY}=pick", f"{STRATEGY}="),
    ):
        assert cities("table", "set", "cities", setting).status == 0
        result = cities("code", "remove", "my_code")
        assert result.status == 1
        assert "is in use by table cities: change the property first" in result.stderr
        assert cities("table", "set", "cities", unset).status == 0
    for name in ("iterator.class.name=Mine", "compaction.strategy.class=pick"):
        default = f"sleeper.default.table.{name}"
        assert cities("instance", "set", default).status == 0
        assert "in use by property sleeper.default" in cities("code", "remove", "my_code").stderr
        assert cities("instance", "set", default.partition("=")[0] + "=").status == 0
    assert cities("instance", "set", "sleeper.default.table.iterator.class.name=No").status == 1
    assert cities("code", "remove", "my_code").status == 0


def test_new_tables_use_the_default_iterator(
    sleeper: Sleeper, schema_file: Path, tmp_path: Path
) -> None:
    sleeper("instance", "set", "sleeper.default.table.iterator.class.name=LatestBySortKey")
    created = sleeper("table", "create", "t", "--schema", schema_file)
    assert (created.status, sleeper("table", "get", "t", ITERATOR).stdout) == (
        0,
        "LatestBySortKey\n",
    )
    rows = tmp_path / "rows.csv"
    rows.write_text("city,year,people\nOslo,2001,5\nOslo,2003,6\nOslo,2002,7\n")
    assert sleeper("ingest", "t", rows).status == 0
    assert sleeper("query", "t", "--format", "json").rows == [
        {"city": "Oslo", "year": 2003, "people": 6}
    ]
    bad = sleeper("table", "create", "u", "--schema", schema_file, "--set", f"{CONFIG}=x")
    assert "iterator 'LatestBySortKey': unexpected config 'x'" in bad.stderr
    plain = {"rowKeyFields": [{"name": "k", "type": "StringType"}]}
    (tmp_path / "plain.json").write_text(json.dumps(plain))
    bad = sleeper("table", "create", "u", "--schema", tmp_path / "plain.json")
    assert "the table has no sort key" in bad.stderr
    assert sleeper("table", "list", "-o", "json").stdout.count("\n") == 1


def test_query_applies_an_iterator(cities: Sleeper, rows_file: Path) -> None:
    assert cities("ingest", "cities", rows_file).status == 0
    aged = ("--iterator", "sleeper.AgeOffByField", "--iterator-config", "people,1")
    result = cities("query", "cities", *aged, "--format", "json")
    assert [row["city"] for row in result.rows] == ["Paris, Texas"]
    result = cities("query", "cities", "--iterator", "Nope")
    assert "error: no iterator 'Nope' is registered (expected one of AgeOffByField" in result.stderr
    result = cities("query", "cities", "--iterator-config", "x")
    assert "is given without a name" in result.stderr
