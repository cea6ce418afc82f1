"""Administration of snapshot tables: properties, reports, clones, backups, undos, exports."""

import io
import re
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper.admin.properties import change_table_properties
from sleeper.bulk_export.service import export_table
from sleeper.errors import ConflictError, InvalidRequestError
from sleeper.garbage_collection.service import collect_table
from sleeper.properties.values import instance_properties, table_properties
from sleeper.query.hold import create_hold
from sleeper.reports.check import check_table
from sleeper.reports.output import ReportKind, write_text
from sleeper.reports.service import report, report_table
from tests.clock import FakeClock

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "StringType"}],
    "valueFields": [{"name": "n", "type": "LongType"}],
}
TTL, VERSIONS_MIN = "sleeper.table.snapshot.ttl", "sleeper.table.snapshot.min.versions"
SNAPSHOT = {"sleeper.table.type": "snapshot", "sleeper.table.gc.delay.minutes": "0"}


@pytest.fixture
def table(instance: sleeper.Instance) -> sleeper.Table:
    return instance.create_table("t", SCHEMA, {**SNAPSHOT, VERSIONS_MIN: "3"})


def load(table: sleeper.Table, job_id: str | None = None, **values: int) -> int:
    table.ingest(pa.table({"k": list(values), "n": pa.array(values.values(), pa.int64())}), job_id)
    return table.version


def content(rows: sleeper.Rowset) -> dict[str, int]:
    return {row["k"]: row["n"] for row in rows.to_arrow().to_pylist()}


def expire(table: sleeper.Table, clock: FakeClock, kept: int = 1) -> None:
    change_table_properties(table._instance, table.name, {VERSIONS_MIN: str(kept)})
    table.expire_snapshots()
    clock.pass_minutes(1)
    collect_table(table._instance, table.name)


def show(table: sleeper.Table) -> str:
    return report_table(table._instance, table.name).listings()[0].note or ""


def test_wrong_properties_are_refused_and_those_without_effect_have_a_warning(
    instance: sleeper.Instance,
) -> None:
    for name, value, expected in (
        ("sleeper.table.type", "snapshots", "one of table, snapshot"),
        (TTL, "0d", "a duration such as"),
        (TTL, "7", "a duration such as"),
        (VERSIONS_MIN, "-1", "an integer from 0"),
    ):
        with pytest.raises(InvalidRequestError, match=expected) as refused:
            instance.create_table("t", SCHEMA, {**SNAPSHOT, name: value})
        assert name in str(refused.value)
        assert instance.tables() == []
    instance.create_table("u", SCHEMA)
    changed = change_table_properties(instance._ports, "u", {TTL: "7d"})
    (warning,) = changed.warnings
    assert warning.startswith(f"property {TTL} has no effect: the table is not a snapshot table")
    with pytest.raises(InvalidRequestError, match="chosen when a table is created"):
        change_table_properties(instance._ports, "u", {"sleeper.table.type": "snapshot"})
    values = {"sleeper.table.type": "snapshot", TTL: "7d", VERSIONS_MIN: "2"}
    assert table_properties(values, instance_properties({})).warnings() == ()


def test_reports_name_the_newest_version_or_its_absence(
    instance: sleeper.Instance, table: sleeper.Table, clock: FakeClock
) -> None:
    assert show(table) == "no snapshot yet"
    number = load(table, a=1)
    assert show(table).startswith(f"version {number}, published at ")
    assert show(table).endswith("; 1 version in all")
    assert tables_note(instance) is None
    change_table_properties(instance._ports, "t", {TTL: "1h", VERSIONS_MIN: "0"})
    assert ", expires at " in show(table)
    clock.pass_minutes(61)
    expire(table, clock, kept=0)
    assert show(table).startswith(f"version {number}, the newest, expired at ")
    assert (tables_note(instance) or "").startswith(f"t: version {number}, the newest, expired at")
    text = io.StringIO()
    for listing in report(instance._ports, ReportKind.ALL):
        write_text(listing, text)
    with pytest.raises(InvalidRequestError, match=f"newest, version {number}, expired at"):
        table.query()


def test_an_older_version_that_is_held_is_not_the_newest(
    instance: sleeper.Instance, table: sleeper.Table, clock: FakeClock
) -> None:
    number, newest = load(table, a=1), load(table, b=2)
    state = instance._ports.table("t").state
    create_hold(state, "held", "test", number, clock(), 7200)
    change_table_properties(instance._ports, "t", {TTL: "1h", VERSIONS_MIN: "0"})
    clock.pass_minutes(61)
    table.expire_snapshots()
    absence = f"version {newest}, the newest, expired at .*"
    assert re.match(f"{absence}; 1 older version can be read as of its number", show(table))
    with pytest.raises(InvalidRequestError, match=f"newest, version {newest}, expired at"):
        table.query()
    assert content(table.query(as_of=number)) == {"a": 1}


def test_values_that_mean_something_else_in_a_snapshot_table_have_a_warning(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    (warning,) = change_table_properties(instance._ports, "t", {VERSIONS_MIN: "0"}).warnings
    assert "is 0 without sleeper.table.snapshot.ttl" in warning
    (warning,) = change_table_properties(instance._ports, "t", {TTL: "1d"}).warnings
    assert "the newest version expires too" in warning
    values = {"sleeper.table.type": "snapshot", "sleeper.table.rows": "latest"}
    (warning,) = table_properties(values, instance_properties({})).warnings()
    assert "sleeper.table.rows is latest in a snapshot table" in warning


def tables_note(instance: sleeper.Instance) -> str | None:
    (listing,) = report(instance._ports, ReportKind.TABLES)
    return listing.note


def test_a_clone_is_a_snapshot_table_that_begins_with_the_version(
    instance: sleeper.Instance, table: sleeper.Table, clock: FakeClock
) -> None:
    with_none = instance.clone_table("t", "none")
    with pytest.raises(InvalidRequestError, match="table 'none': there is no snapshot yet"):
        with_none.query()
    first, _ = load(table, a=1), load(table, b=2)
    clone = instance.clone_table("t", "copy", as_of=first)
    expire(table, clock)
    expire(clone, clock)
    assert content(clone.query()) == {"a": 1}
    assert content(table.query()) == {"b": 2}
    with pytest.raises(InvalidRequestError, match=f"version {first} is no longer readable"):
        instance.clone_table("t", "late", as_of=first)
    load(clone, c=3)
    assert (content(clone.query()), content(table.query())) == ({"c": 3}, {"b": 2})


def test_a_backup_has_the_newest_version(
    instance: sleeper.Instance, table: sleeper.Table, tmp_path: Path
) -> None:
    empty = instance.create_table("empty", SCHEMA, SNAPSHOT)
    load(table, a=1)
    load(table, b=2)
    instance.backup(tmp_path / "backup")
    load(table, c=3)
    sleeper.restore_instance(tmp_path / "backup", tmp_path / "restored")
    with sleeper.open_instance(tmp_path / "restored") as restored:
        again = restored.table("t")
        assert content(again.query()) == {"b": 2}
        assert len(again.snapshot_versions()) == 1
        with pytest.raises(InvalidRequestError, match="table 'empty': there is no snapshot yet"):
            restored.table("empty").query()
        load(again, d=4)
        assert content(again.query()) == {"d": 4}
    assert empty.snapshot_versions() == []


def test_an_undo_names_the_restore_only_if_the_version_before_is_readable(
    table: sleeper.Table, clock: FakeClock
) -> None:
    load(table, "first", a=1)
    with pytest.raises(InvalidRequestError, match="before the job, is not readable"):
        table.undo("first")
    load(table, "second", b=2)
    with pytest.raises(InvalidRequestError, match=r"sleeper table restore t --to \d+") as refused:
        table.undo("second")
    before = int(str(refused.value).split("--to ")[1].split()[0])
    table.restore(before)
    assert content(table.query()) == {"a": 1}
    expire(table, clock)
    with pytest.raises((ConflictError, InvalidRequestError), match="no longer readable"):
        table.restore(before)


def test_a_check_and_an_export_read_one_version(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    with pytest.raises(InvalidRequestError, match="table 't': there is no snapshot yet"):
        export_table(instance._ports, "t")
    assert check_table(instance._ports, "t").findings == []
    load(table, a=1, b=2)
    load(table, c=3)
    assert check_table(instance._ports, "t").rows == 1
    assert export_table(instance._ports, "t").rows == 1
