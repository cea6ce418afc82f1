"""Tables and properties from the command line."""

import json
from pathlib import Path

import pytest

from sleeper.clock import iso_time, system_clock
from tests.unit.cli.conftest import Sleeper


def test_unknown_table_error_suggests_a_similar_name(cities: Sleeper) -> None:
    assert cities("query", "citys").stderr == (
        "error: no table is named 'citys'; did you mean cities?\n"
    )
    assert cities("query", "planets").stderr == "error: no table is named 'planets'\n"


def test_table_list_rename_offline_and_delete(cities: Sleeper) -> None:
    (row,) = cities("table", "list", "--output", "json").rows
    assert (row["name"], row["online"], row["state"], row["leaves"]) == (
        "cities",
        True,
        "active",
        2,
    )
    assert cities("table", "rename", "cities", "towns").status == 0
    assert cities("table", "offline", "towns").status == 0
    (row,) = cities("table", "list", "--output", "json").rows
    assert (row["name"], row["online"]) == ("towns", False)
    assert cities("table", "online", "towns").status == 0
    refused = cities("table", "delete", "towns")
    assert (refused.status, refused.stdout) == (2, "")
    assert "cannot ask whether to delete table towns with 0 rows" in refused.stderr
    deleted = cities("table", "delete", "towns", "--yes")
    table_id = deleted.stderr.split()[-1]
    assert deleted.stderr == (
        f"deleted table towns; to bring it back, run: sleeper table undelete {table_id}\n"
    )
    (listed,) = cities("table", "list", "--deleted", "--output", "json").rows
    assert (listed["name"], listed["id"]) == ("towns", table_id)
    assert listed["deleted"] < listed["kept_until"]
    assert cities("table", "undelete", "town").stderr.endswith("did you mean towns?\n")
    assert cities("table", "undelete", "towns").stderr == "undeleted table towns\n"
    assert cities("table", "list", "--deleted", "--output", "json").rows == []
    assert cities("table", "delete", "towns", "--yes", "--now").stderr == "deleting table towns\n"
    assert cities("table", "undelete", "towns").status == 1
    (row,) = cities("table", "list", "--output", "json").rows
    assert row["state"] == "deleting"
    assert cities("table", "show", "towns").status == 1


def test_table_show_has_counts_fields_and_set_properties(cities: Sleeper) -> None:
    cities("table", "set", "cities", "sleeper.table.gc.delay.minutes=7")
    rows = cities("table", "show", "cities", "--output", "json").rows
    assert [row["report"] for row in rows] == ["table", *["schema"] * 3, "table-properties"]
    assert (rows[0]["name"], rows[0]["rows"], rows[0]["partitions"]) == ("cities", 0, 3)
    assert [(r["field"], r["role"], r["type"], r["nullable"]) for r in rows[1:4]] == [
        ("city", "row key", "StringType", False),
        ("year", "sort key", "IntType", False),
        ("people", "value", "LongType", True),
    ]
    assert rows[4]["value"] == "7"


def test_table_history_prints_transactions_newest_first(cities: Sleeper) -> None:
    (row,) = cities("table", "history", "cities", "--output", "json").rows
    assert (row["report"], row["number"], row["operation"]) == ("history", 1, "create table")
    assert (row["job"], row["rows"]) == (None, None)
    assert "create table" in cities("table", "history", "cities").stdout
    assert (
        "1 more transaction: see --limit"
        in cities("table", "history", "cities", "--limit", "0").stdout
    )
    assert cities("table", "history", "towns").status == 1


def test_table_set_prints_changes_and_an_empty_value_unsets(cities: Sleeper) -> None:
    name = "sleeper.table.gc.delay.minutes"
    (row,) = cities("table", "set", "cities", f"{name}=7", "--output", "json").rows
    assert (row["property"], row["before"], row["after"]) == (name, "10", "7")
    assert cities("table", "get", "cities", name).stdout == "7\n"
    cities("table", "set", "cities", f"{name}=")
    assert cities("table", "get", "cities", name).stdout == "10\n"


def test_ignored_properties_are_set_with_a_warning(cities: Sleeper) -> None:
    result = cities("table", "set", "cities", "sleeper.table.statestore.classname=x")
    assert result.status == 0
    assert result.stderr == (
        "warning: property sleeper.table.statestore.classname means nothing here, and is ignored\n"
    )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("sleeper.table.gc.delay.minute=1", "did you mean sleeper.table.gc.delay.minutes?"),
        ("sleeper.table.gc.delay.minutes=soon", "cannot be 'soon'"),
        ("sleeper.table.id=00000000", "is set by the system"),
        ("sleeper.table.name=other", "use `sleeper table rename`"),
    ],
)
def test_table_set_rejects_invalid_settings(cities: Sleeper, setting: str, message: str) -> None:
    result = cities("table", "set", "cities", setting)
    assert (result.status, result.stdout) == (1, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_table_properties_lists_values_with_their_origin(cities: Sleeper) -> None:
    cities("instance", "set", "sleeper.default.table.gc.delay.minutes=3")
    cities("table", "set", "cities", "sleeper.table.parquet.page.size=64K")
    rows = cities("table", "properties", "cities", "--output", "json").rows
    result = {row["property"]: (row["value"], row["set_in"]) for row in rows}
    assert result["sleeper.table.gc.delay.minutes"] == ("3", "instance")
    assert result["sleeper.table.parquet.page.size"] == ("64K", "table")
    assert result["sleeper.table.compaction.files.batch.size"] == ("12", None)


def test_instance_set_warns_if_a_deployment_is_required(sleeper: Sleeper) -> None:
    result = sleeper("instance", "set", "sleeper.orphan.period.hours=2")
    assert result.status == 0
    assert "takes effect at the next deployment" in result.stderr
    rows = sleeper("instance", "properties", "--output", "json").rows
    assert {"sleeper.orphan.period.hours": "2"}.items() <= {
        r["property"]: r["value"] for r in rows
    }.items()


def test_invalid_schema_files_are_named(sleeper: Sleeper, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"rowKeyFields": []}')
    result = sleeper("table", "create", "a", "--schema", wrong)
    assert (result.status, result.stdout) == (1, "")
    assert result.stderr == (
        f"error: schema file {wrong}: schema has no row key field (expected at least one)\n"
    )
    missing = sleeper("table", "create", "a", "--schema", tmp_path / "missing.json")
    assert f"schema file {tmp_path / 'missing.json'} cannot be read" in missing.stderr
    assert sleeper("table", "list", "--output", "json").rows == []


def test_split_points_file_from_a_property_with_base64(
    sleeper: Sleeper, schema_file: Path, tmp_path: Path
) -> None:
    points = tmp_path / "points"
    points.write_text("Yjpj\n")
    result = sleeper(
        *("table", "create", "a", "--schema", schema_file),
        *("--set", f"sleeper.table.splits.file={points}"),
        *("--set", "sleeper.table.splits.base64.encoded=true"),
    )
    assert result.status == 0
    rows = sleeper("report", "partitions", "--table", "a", "--output", "json").rows
    assert [row["region"]["city"]["min"] for row in rows] == ["", "", "b:c"]


def test_invalid_split_point_error_names_the_line(sleeper: Sleeper, tmp_path: Path) -> None:
    schema, points = tmp_path / "s.json", tmp_path / "points"
    schema.write_text(json.dumps({"rowKeyFields": [{"name": "k", "type": "IntType"}]}))
    points.write_text("1\ntwo\n")
    result = sleeper("table", "create", "a", "--schema", schema, "--split-points", points)
    assert result.status == 1
    assert f"split points file {points}, line 2: invalid value of field 'k': 'two'" in result.stderr


def test_table_create_rejects_an_existing_name(cities: Sleeper, schema_file: Path) -> None:
    result = cities("table", "create", "cities", "--schema", schema_file)
    assert (result.status, result.stderr) == (1, "error: table 'cities' already exists\n")


FILTERS, AGGREGATIONS = "sleeper.table.filters", "sleeper.table.aggregations"


def test_table_create_sets_filters_and_aggregations(sleeper: Sleeper, schema_file: Path) -> None:
    wrong = sleeper("table", "create", "t", "--schema", schema_file, "--set", f"{AGGREGATIONS}=x")
    assert (wrong.status, "is not an aggregation such as sum(field)" in wrong.stderr) == (1, True)
    misfit = f"{AGGREGATIONS}=sum(city)"
    wrong = sleeper("table", "create", "t", "--schema", schema_file, "--set", misfit)
    assert (wrong.status, "'city' is a key field" in wrong.stderr) == (1, True)
    sleeper(
        "table", "create", "t", "--schema", schema_file, "--set", f"{AGGREGATIONS}=SUM( people )"
    )
    schema_file.with_name("a.csv").write_text("city,year,people\nOslo,2001,1\nOslo,2001,2\n")
    assert sleeper("ingest", "t", schema_file.with_name("a.csv")).status == 0
    result = sleeper("query", "t", "--format", "json")
    assert result.rows == [{"city": "Oslo", "year": 2001, "people": 3}]
    own = sleeper("query", "t", "--format", "json", "--aggregations", "max(people)")
    assert own.rows == result.rows


def test_processing_properties_are_published_from_the_log(cities: Sleeper) -> None:
    assert cities("table", "set", "cities", f"{AGGREGATIONS}=MIN( people )").status == 0
    assert cities("table", "get", "cities", AGGREGATIONS).stdout == "min(people)\n"
    both = (f"{FILTERS}=ageOff(year,5)", "sleeper.table.gc.delay.minutes=7")
    refusals = cities("table", "set", "cities", *both)
    assert (refusals.status, "field 'year' is IntType" in refusals.stderr) == (1, True)
    assert cities("table", "get", "cities", "sleeper.table.gc.delay.minutes").stdout == "10\n"
    assert cities("table", "set", "cities", f"{AGGREGATIONS}=").status == 0
    assert cities("table", "get", "cities", AGGREGATIONS).stdout == "\n"


def test_new_tables_keep_the_default_processing_of_their_creation(
    sleeper: Sleeper, schema_file: Path
) -> None:
    default = "sleeper.default.table.aggregations"
    sleeper("instance", "set", f"{default}=sum(people)")
    sleeper("table", "create", "a", "--schema", schema_file)
    sleeper("table", "create", "b", "--schema", schema_file, "--set", f"{AGGREGATIONS}=")
    sleeper("instance", "set", f"{default}=max(people)")
    assert sleeper("table", "get", "a", AGGREGATIONS).stdout == "sum(people)\n"
    assert sleeper("table", "get", "b", AGGREGATIONS).stdout == "\n"


def test_accept_time_permits_commits_after_a_long_idle_period(
    cities: Sleeper, rows_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later_ms = system_clock() + 400 * 24 * 3600 * 1000
    monkeypatch.setattr("sleeper.clock.time.time_ns", lambda: later_ms * 1_000_000)
    refusals = cities("ingest", "cities", rows_file)
    assert refusals.status == 1
    assert "400 days ahead" in refusals.stderr
    assert "sleeper table accept-time NAME" in refusals.stderr
    acceptances = cities("table", "accept-time", "cities")
    assert (acceptances.status, acceptances.stdout) == (0, "")
    assert f"to {iso_time(later_ms)}" in acceptances.stderr
    assert cities("ingest", "cities", rows_file).status == 0


def test_accept_time_all_includes_every_table(cities: Sleeper) -> None:
    acceptances = cities("table", "accept-time", "--all")
    assert (acceptances.status, acceptances.stderr[:12]) == (0, "table cities")
    assert cities("table", "accept-time").status == 2
    assert cities("table", "accept-time", "cities", "--all").status == 2
