"""Purges of a snapshot table: versions that have not expired keep deleted rows."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper.local.instance import open_local_instance
from sleeper.purging.report import ObjectState, PurgeReport
from tests.clock import FakeClock
from tests.remnants import find_remnants

PERSON = "key-of-the-person"
SCHEMA = {"rowKeyFields": [{"name": "key", "type": "StringType"}]}
PROPERTIES = {
    "sleeper.table.type": "snapshot",
    "sleeper.table.snapshot.min.versions": "2",
    "sleeper.table.gc.delay.minutes": "0",
}


@pytest.fixture
def table(tmp_path: Path, clock: FakeClock) -> Iterator[sleeper.Table]:
    sleeper.create_instance(tmp_path / "instance", {"sleeper.engine.threads": "1"}).close()
    with sleeper.Instance(open_local_instance(tmp_path / "instance", clock)) as opened:
        yield opened.create_table("rows", SCHEMA, PROPERTIES)


def load(table: sleeper.Table, *keys: str) -> int:
    table.ingest(pa.table({"key": list(keys)}))
    return table.version


def reasons(report: PurgeReport) -> set[str | None]:
    return {each.reason for each in report.objects if each.state is ObjectState.KEPT}


def remnants(table: sleeper.Table) -> list[str]:
    files = [path for path in Path(table._instance.where).rglob("*") if path.is_file()]
    return find_remnants(((str(path), path.read_bytes()) for path in files), PERSON)


def test_a_purge_names_the_versions_that_keep_deleted_rows(
    table: sleeper.Table, clock: FakeClock
) -> None:
    first = load(table, "a", PERSON, "z")
    second = load(table, "b", PERSON, "y")
    table.delete(keys=[[PERSON]])
    clock.pass_minutes(1)
    report = table.purge()
    assert not report.is_complete
    expiry = "it expires (sleeper snapshot expire rows)"
    assert reasons(report) == {
        f"snapshot version {first}, until {expiry} and 1 more",
        f"snapshot version {first}, until {expiry}",
    }
    assert table.query().to_arrow()["key"].to_pylist() == ["b", "y"]

    load(table, "c")
    table.expire_snapshots()
    clock.pass_minutes(1)
    assert reasons(table.purge()) == {f"snapshot version {second}, until {expiry}"}

    load(table, "d")
    table.expire_snapshots()
    clock.pass_minutes(1)
    report = table.purge()
    assert report.is_complete, report
    assert remnants(table) == []
    assert table.query().to_arrow()["key"].to_pylist() == ["d"]


def test_the_newest_version_keeps_its_rows_until_a_load(
    table: sleeper.Table, clock: FakeClock
) -> None:
    number = load(table, PERSON)
    table.delete(keys=[[PERSON]])
    clock.pass_minutes(1)
    condition = "a load replaces it and it expires (sleeper snapshot expire rows)"
    assert reasons(table.purge()) == {f"snapshot version {number}, until {condition}"}
