"""Snapshot tables in Python: loads, versions, and readers of one version."""

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import InvalidRequestError
from sleeper.garbage_collection.service import collect_table
from tests.clock import FakeClock

pytestmark = pytest.mark.usefixtures("holds_of_reads")

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "StringType"}],
    "valueFields": [{"name": "n", "type": "LongType"}],
}
SNAPSHOT = {"sleeper.table.type": "snapshot", "sleeper.table.gc.delay.minutes": "0"}


@pytest.fixture
def table(instance: sleeper.Instance) -> sleeper.Table:
    return instance.create_table("t", SCHEMA, SNAPSHOT, split_points=["m"])


def load(table: sleeper.Table, job_id: str | None = None, **values: int) -> int:
    table.ingest(pa.table({"k": list(values), "n": pa.array(values.values(), pa.int64())}), job_id)
    return table.version


def content(rows: sleeper.Rowset) -> dict[str, int]:
    return {row["k"]: row["n"] for row in rows.to_arrow().to_pylist()}


def holds(table: sleeper.Table) -> int:
    return len(table._instance.table(table.name).state.holds.all())


def collect(table: sleeper.Table, clock: FakeClock) -> None:
    clock.pass_minutes(1)
    collect_table(table._instance, table.name)


def test_an_ingest_replaces_all_rows(table: sleeper.Table) -> None:
    first = load(table, "a", x=1, y=2, z=3)
    second = load(table, "b", x=1, z=4)
    assert content(table.query()) == {"x": 1, "z": 4}
    assert content(table.query(keys=[["y"]], as_of=first)) == {"y": 2}
    versions = [(each.number, each.job, each.rows) for each in table.snapshot_versions()]
    assert versions == [(second, "b", 2), (first, "a", 3)]
    load(table)
    assert content(table.query()) == {}


def test_versions_expire(table: sleeper.Table) -> None:
    first, second = load(table, a=1), load(table, a=2)
    for dry_run in (True, False):
        assert [each.number for each in table.expire_snapshots(dry_run)] == [first]
    assert [each.number for each in table.snapshot_versions()] == [second]


def test_a_reader_keeps_its_version_until_it_is_refreshed(
    table: sleeper.Table, clock: FakeClock
) -> None:
    first = load(table, a=1, z=1)
    with table.reader() as reader:
        load(table, a=2, z=2)
        table.expire_snapshots()
        collect(table, clock)
        assert reader.version == first
        assert content(reader.query()) == {"a": 1, "z": 1}
        assert content(reader.query(keys=[["z"]], columns=["k", "n"])) == {"z": 1}
        assert content(reader.sql("SELECT * FROM t WHERE n < 10")) == {"a": 1, "z": 1}
        assert reader.refresh()
        assert not reader.refresh()
        assert content(reader.query()) == {"a": 2, "z": 2}
    assert holds(table) == 0
    assert [each.rows for each in table.snapshot_versions()] == [2, 2]
    table.expire_snapshots()
    collect(table, clock)
    with pytest.raises(InvalidRequestError, match=f"version {first} is no longer readable"):
        table.query(as_of=first)


def test_a_reader_of_any_table_is_refreshed_by_a_change_of_rows_or_schema(
    instance: sleeper.Instance,
) -> None:
    table = instance.create_table("u", SCHEMA)
    load(table, a=1)
    with table.reader() as reader:
        version = reader.version
        assert not reader.refresh()
        load(table, b=1)
        assert content(reader.query()) == {"a": 1}
        assert reader.refresh()
        assert reader.version > version
        assert content(reader.query()) == {"a": 1, "b": 1}
        table.add_field("m", "LongType")
        assert reader.query().schema.names == ["k", "n"]
        assert reader.refresh()
        assert reader.query().schema.names == ["k", "n", "m"]


def test_a_closed_reader_and_a_table_without_rows_are_refused(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    with pytest.raises(InvalidRequestError, match="table 't': there is no snapshot yet"):
        table.reader()
    assert holds(table) == 0
    load(table, a=1)
    reader = table.reader()
    with pytest.raises(InvalidRequestError, match="as_of names table 't'"):
        reader.sql("SELECT 1 FROM t", as_of={"t": 1})
    reader.close()
    reader.close()
    for call in (reader.query, reader.refresh, lambda: reader.sql("SELECT 1 FROM t")):
        with pytest.raises(InvalidRequestError, match="reader of table 't' is closed"):
            call()
    other = instance.create_table("u", SCHEMA)
    for versions in (other.snapshot_versions, other.expire_snapshots):
        with pytest.raises(InvalidRequestError, match=r"table 'u'.* not a snapshot table"):
            versions()
