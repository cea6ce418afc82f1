"""Publications: what is refused, written, kept and deleted."""

import contextlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import InvalidRequestError, NotFoundError, UnavailableError
from sleeper.iceberg import manifest_writer
from sleeper.iceberg import metadata as metadata_of_table
from sleeper.iceberg import publish as publication
from sleeper.iceberg.automatic import publish_due
from sleeper.iceberg.cleaning import clean
from sleeper.iceberg.compacting import compact_to_publish
from sleeper.iceberg.file_rows import all_files
from sleeper.iceberg.location import Location
from sleeper.iceberg.metadata import Metadata, current_snapshot
from sleeper.iceberg.publish import Published
from sleeper.iceberg.published import find_published
from sleeper.iceberg.service import open_location, publish_table
from sleeper.iceberg.status import find_problems, find_publications
from sleeper.instance import Instance as Ports
from sleeper.instance import OpenTable
from sleeper.opening import open_instance
from sleeper.query.hold import create_hold
from sleeper.storage.location import open_root
from tests.engines import ENGINES, Readers, count_rows
from tests.older_formats import write_file_of_fields, write_file_of_release_0_2

SCHEMA = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [
        {"name": "v", "type": "StringType"},
        {"name": "tags", "type": {"ListType": {"elementType": "StringType"}}},
        {"name": "counts", "type": {"MapType": {"keyType": "StringType", "valueType": "LongType"}}},
    ],
}
DAY_SECONDS = 24 * 3600


@pytest.fixture
def instance(tmp_path: Path) -> Any:
    with sleeper.create_instance(tmp_path / "instance") as opened:
        yield opened


@pytest.fixture
def ports(instance: sleeper.Instance, tmp_path: Path) -> Any:
    opened = open_instance(str(tmp_path / "instance"))
    yield opened
    opened.close()


def create(instance: sleeper.Instance, split_points: list[Any] | None = None, **set_: str) -> Any:
    properties = {f"sleeper.table.{name.replace('__', '.')}": v for name, v in set_.items()}
    return instance.create_table(
        "t", json.dumps(SCHEMA), split_points=split_points or [], properties=properties
    )


def rows(*ids: int) -> list[dict[str, Any]]:
    return [{"id": i, "v": f"v{i}", "tags": ["a"], "counts": {"x": i}} for i in ids]


def located(published: Published) -> Location:
    return Location(open_root(published.location.removeprefix("file://")))


def manifests(published: Published) -> set[str]:
    url = current_snapshot(published.metadata)["manifest-list"]
    return {each.url for each in located(published).read_list(url)}


def test_a_version_without_other_rows_is_not_published_again(instance: sleeper.Instance) -> None:
    table = create(instance)
    first = instance.publish_iceberg("t")
    assert (first.is_new, first.rows, first.files) == (True, 0, 0)
    table.ingest(rows(1, 2))
    second = instance.publish_iceberg("t")
    assert (second.number, second.rows, second.snapshots) == (table.version, 2, 2)
    table.set_properties({"sleeper.table.gc.delay.minutes": "1"})
    assert not instance.publish_iceberg("t").is_new


def test_a_commit_replaces_few_manifests(instance: sleeper.Instance) -> None:
    table = create(instance)
    for number in range(20):
        table.ingest(rows(number))
    before = manifests(instance.publish_iceberg("t"))
    table.ingest(rows(100))
    after = manifests(instance.publish_iceberg("t"))
    assert len(before) > 2
    assert len(after - before) == 1


def test_delete_files_of_unchanged_rows_stay(
    instance: sleeper.Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(instance, [10])
    table.ingest(rows(1, 2, 20))
    table.delete(keys=[[1]])
    first = instance.publish_iceberg("t")
    assert (first.delete_files, first.hidden_rows, first.rows) == (1, 1, 2)
    monkeypatch.setattr(manifest_writer, "encode_delete_file", None)
    table.ingest(rows(3))
    second = instance.publish_iceberg("t")
    assert (second.delete_files, second.hidden_rows, second.rows) == (1, 1, 3)
    # As if the state had forgotten the changes: everything is written again.
    monkeypatch.setattr(publication, "find_changes", lambda *_: None)
    table.ingest(rows(4))
    third = instance.publish_iceberg("t")
    assert (third.delete_files, third.hidden_rows, third.rows) == (1, 1, 4)


def test_files_whose_rows_are_all_deleted_are_left_out(instance: sleeper.Instance) -> None:
    table = create(instance)
    table.ingest(rows(1, 2))
    table.ingest(rows(50))
    # Neither in the order of keys, nor without overlap.
    for low, high in ((2, 10), (5, 7), (0, 3)):
        table.delete(ranges=[(low, high)])
    published = instance.publish_iceberg("t")
    assert (published.files, published.delete_files, published.rows) == (1, 0, 1)
    table.delete(keys=[[50]])
    published = instance.publish_iceberg("t")
    assert (published.files, published.delete_files, published.rows) == (0, 0, 0)


def test_tables_with_filters_are_refused(instance: sleeper.Instance) -> None:
    create(instance, filters="ageOff(id,1000)")
    with pytest.raises(InvalidRequestError, match="table 't' has filters"):
        instance.publish_iceberg("t")


def test_a_location_has_one_table_until_that_is_deleted_or_unpublished(
    instance: sleeper.Instance, tmp_path: Path
) -> None:
    create(instance)
    instance.create_table("other", json.dumps(SCHEMA)).ingest(rows(1))
    folder = tmp_path / "published"
    first = instance.publish_iceberg("t", folder)
    way_out = f"has table 't', so 'other' .*: `sleeper iceberg unpublish t --to {folder}` empties"
    with pytest.raises(InvalidRequestError, match=way_out):
        instance.publish_iceberg("other", folder)
    with pytest.raises(InvalidRequestError, match=r"has table 't' \(expected 'other'\)"):
        instance.unpublish_iceberg("other", folder)
    instance.delete_table("t")
    second = instance.publish_iceberg("other", folder)
    assert second.metadata["table-uuid"] != first.metadata["table-uuid"]
    assert (second.rows, second.snapshots, second.metadata_version) == (1, 1, 2)
    removed = instance.unpublish_iceberg("other", folder)
    assert removed.objects >= 4
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    with pytest.raises(NotFoundError, match="no table is published in"):
        instance.unpublish_iceberg("other", folder)
    # A table of another instance may exist, whatever this one knows.
    with sleeper.create_instance(tmp_path / "another") as another:
        create(another)
        another.publish_iceberg("t", folder)
        another.delete_table("t")
        with pytest.raises(InvalidRequestError, match="has table 't', so 'other'"):
            instance.publish_iceberg("other", folder)
        with pytest.raises(NotFoundError, match="expected --to for a deleted one"):
            another.unpublish_iceberg("t")
        assert another.unpublish_iceberg("t", folder).location == f"file://{folder}"
    assert instance.publish_iceberg("other", folder).is_new


def test_the_metadata_of_other_programs_stays(instance: sleeper.Instance, tmp_path: Path) -> None:
    table = create(instance)
    folder = tmp_path / "published"
    other = folder / "metadata" / "00001-7c0e.metadata.json"
    other.parent.mkdir(parents=True)
    other.touch()
    with pytest.raises(InvalidRequestError, match=r"00001-7c0e.* belongs to another table"):
        instance.publish_iceberg("t", folder)
    other.unlink()
    instance.publish_iceberg("t", folder)
    other.touch()
    table.ingest(rows(1))
    last = instance.publish_iceberg("t", folder)
    now_ms = int(other.stat().st_mtime * 1000) + DAY_SECONDS * 1000
    assert clean(located(last), last.metadata_version, last.metadata, now_ms) == 1
    assert other.exists()


def test_files_that_lack_a_field_with_a_default_must_be_rewritten(
    instance: sleeper.Instance, ports: Ports
) -> None:
    table = create(instance, [10], iceberg__publish__seconds="60")
    table.ingest(rows(1, 20))
    table.add_field("n", "LongType", default=7)
    with pytest.raises(InvalidRequestError, match="without the field 'n', whose default"):
        instance.publish_iceberg("t")
    later = replace(ports, clock=lambda: ports.clock() + 300_000)
    (problem,) = find_problems(later)
    assert "expected rewritten files: `sleeper iceberg publish t --compact`" in problem.reason
    # A compaction leaves lone files as they are.
    assert compact_to_publish(ports.table("t")) == 2
    assert instance.publish_iceberg("t").rows == 2
    assert compact_to_publish(ports.table("t")) == 0


def test_published_versions_are_held_and_expire_with_the_horizon(
    instance: sleeper.Instance, ports: Ports
) -> None:
    table = create(instance, gc__delay__minutes="0", iceberg__hold__seconds="60")
    for number in range(2):
        table.ingest(rows(number))
    held = instance.publish_iceberg("t")
    (hold,) = ports.table("t").state.holds.unexpired()
    assert (hold.owner, hold.version) == ("iceberg", held.number)
    table.compact(full=True)
    instance.run_until_idle()
    assert table.gc().files == 0
    assert instance.publish_iceberg("t").snapshots == 2
    ports.table("t").state.holds.release([hold.id])
    assert table.gc().files == 2
    after = instance.publish_iceberg("t")
    numbers = [each["snapshot-id"] for each in after.metadata["snapshots"]]
    assert held.number not in numbers
    assert numbers[-1] == after.number


def test_a_version_whose_files_may_be_deleted_is_not_offered(
    instance: sleeper.Instance, ports: Ports
) -> None:
    table = create(instance, gc__delay__minutes="0")
    for number in range(2):
        table.ingest(rows(number))
    published = instance.publish_iceberg("t")
    store = ports.table("t").state
    assert find_published(ports.table("t")).url == published.metadata_url
    table.compact(full=True)
    instance.run_until_idle()
    store.holds.release([hold.id for hold in store.holds.unexpired()])
    assert table.gc().files == 2
    with pytest.raises(UnavailableError, match=r"version of table 't' is not readable: .* oldest"):
        find_published(ports.table("t"))
    published = instance.publish_iceberg("t")
    assert find_published(ports.table("t")).url == published.metadata_url
    path = Path(published.metadata_url.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    metadata["snapshots"][-1]["timestamp-ms"] -= 1
    path.write_text(json.dumps(metadata))
    with pytest.raises(UnavailableError, match="since a backup was restored"):
        find_published(ports.table("t"))


def test_a_slow_publication_is_held_from_its_end(
    instance: sleeper.Instance, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(instance, iceberg__hold__seconds="60")
    table.ingest(rows(1))
    times = [ports.clock()]
    write = Location.write

    def write_late(self: Location, version: int, metadata: Metadata) -> None:
        times.append(times[-1] + 100_000)
        write(self, version, metadata)

    monkeypatch.setattr(Location, "write", write_late)
    slow = OpenTable(replace(ports, clock=lambda: times[-1]), ports.table("t").ref)
    number = publish_table(slow).number
    assert max(each.expiry_ms for each in slow.state.holds.all() if each.version == number) >= (
        times[-1] + 40_000
    )


def test_what_no_snapshot_needs_is_deleted(instance: sleeper.Instance) -> None:
    table = create(instance)
    table.ingest(rows(1, 2))
    instance.publish_iceberg("t")
    table.delete(keys=[[1]])
    last = instance.publish_iceberg("t")
    location = located(last)
    old = {**last.metadata, "snapshots": [last.metadata["snapshots"][-1]]}
    folder = Path(location.url.removeprefix("file://"))
    before = {path.name for path in folder.rglob("*") if path.is_file()}
    now_ms = int(max(path.stat().st_mtime for path in folder.rglob("*")) * 1000)
    assert clean(location, last.metadata_version, old, now_ms) == 0
    assert clean(location, last.metadata_version, old, now_ms + DAY_SECONDS * 1000) == 3
    deleted = before - {path.name for path in folder.rglob("*")}
    assert {os.path.splitext(name)[1] for name in deleted} == {".avro", ".json"}
    assert instance.publish_iceberg("t").number == last.number


def test_a_publisher_that_died_before_the_hint_is_continued(instance: sleeper.Instance) -> None:
    table = create(instance)
    table.ingest(rows(1))
    instance.publish_iceberg("t")
    table.ingest(rows(2))
    published = instance.publish_iceberg("t")
    hint = Path(published.location.removeprefix("file://")) / "metadata/version-hint.text"
    hint.write_text("1")
    table.ingest(rows(3))
    assert instance.publish_iceberg("t").metadata_version == 3
    assert hint.read_text() == "3"


def test_of_two_publishers_one_tries_again(
    instance: sleeper.Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(instance)
    table.ingest(rows(1))
    write, others = Location.write, [1]

    def write_second(self: Location, version: int, metadata: Metadata) -> None:
        if others:
            others.pop()
            instance.publish_iceberg("t")
            table.ingest(rows(2))
        write(self, version, metadata)

    monkeypatch.setattr(Location, "write", write_second)
    published = instance.publish_iceberg("t")
    assert (published.metadata_version, published.rows, published.snapshots) == (2, 2, 2)


def test_tables_with_the_property_are_published_after_commits(
    instance: sleeper.Instance, ports: Ports
) -> None:
    table = create(instance, iceberg__publish__seconds="3600")
    assert publish_due(ports, None) == (True, [])
    table.ingest(rows(1))
    assert publish_due(ports, None) == (False, [])
    assert publish_due(replace(ports, clock=lambda: ports.clock() + 3_600_000), None)[0]
    assert publish_due(ports, None) == (False, [])
    table.ingest(rows(2))
    # `sleeper run --until-idle` does not wait.
    instance.run_until_idle()
    _, metadata = open_location(ports.table("t")).read()
    assert metadata is not None
    assert metadata["current-snapshot-id"] == table.version
    table.set_properties({"sleeper.table.iceberg.location": "/dev/null/no"})
    did_anything, problems = publish_due(ports, None)
    assert not did_anything
    assert "table t is not published" in problems[0]


@pytest.mark.slow
def test_tables_of_latest_rows_are_published_when_they_are_compacted(
    instance: sleeper.Instance, readers: Readers
) -> None:
    table = create(instance, [10], rows="latest")
    table.ingest(rows(*range(20)))
    first = instance.publish_iceberg("t")
    table.ingest([{**each, "v": "new"} for each in rows(3, 15)])
    # Tombstones of keys: one hides a row, the other nothing.
    table.ingest([{**each, "op": "delete"} for each in rows(4, 90)], op_column="op")
    behind = instance.publish_iceberg("t")
    assert (behind.number, behind.is_new) == (first.number, False)
    assert behind.behind == table.version - first.number
    table.compact(full=True)
    instance.run_until_idle()
    for _ in range(2):
        published = instance.publish_iceberg("t")
        assert published.is_new
        assert published.behind == 0
        for engine in ENGINES:
            found = readers.read(engine, metadata=published.metadata_url)
            assert count_rows(found) == count_rows(table.query().to_arrow()), engine
        # In a region of its own, so that it has no common keys with other files.
        changes = zip(rows(95, 97), ["delete", "upsert"], strict=True)
        table.ingest([{**each, "op": op} for each, op in changes], op_column="op")


@pytest.mark.slow
def test_tables_that_aggregate_are_published_when_they_are_compacted(
    instance: sleeper.Instance, readers: Readers
) -> None:
    fields = [
        {"name": "total", "type": "LongType"},
        {"name": "latest", "type": "StringType", "nullable": True},
        SCHEMA["valueFields"][2],
    ]
    table = instance.create_table(
        "t",
        json.dumps({**SCHEMA, "valueFields": fields}),
        split_points=[10],
        properties={"sleeper.table.aggregations": "sum(total),max(latest),map_sum(counts)"},
    )

    def ingest(*ids: int) -> None:
        table.ingest(
            [{"id": i, "total": 1, "latest": f"v{i}", "counts": {"b": 1, "a": i}} for i in ids]
        )

    def compact_and_check(rows_of_table: int) -> None:
        table.compact(full=True)
        instance.run_until_idle()
        published = instance.publish_iceberg("t")
        expected = table.query(as_of=published.number).to_arrow()
        assert (published.is_new, published.behind) == (True, 0)
        assert published.rows == expected.num_rows == rows_of_table
        found = readers.read("pyiceberg", metadata=published.metadata_url)
        assert count_rows(found) == count_rows(expected)

    # Rows of one file have equal keys, and one leaf has no other file.
    ingest(1, 1, 2)
    with pytest.raises(InvalidRequestError, match="has files with rows that no compaction"):
        instance.publish_iceberg("t")
    compact_and_check(2)
    ingest(1, 15)
    behind = instance.publish_iceberg("t")
    assert (behind.is_new, behind.rows, behind.behind) == (False, 2, 1)
    compact_and_check(3)
    table.delete(keys=[[2]])
    deleted = instance.publish_iceberg("t")
    assert (deleted.behind, deleted.rows, deleted.hidden_rows) == (0, 2, 1)
    table.set_properties({"sleeper.table.aggregations": "max(total),max(latest),map_sum(counts)"})
    assert instance.publish_iceberg("t").behind == 1
    compact_and_check(2)


def test_aggregated_files_with_common_keys_are_not_published(instance: sleeper.Instance) -> None:
    schema = {**SCHEMA, "valueFields": [{"name": "total", "type": "LongType"}]}
    properties = {
        "sleeper.table.aggregations": "sum(total)",
        "sleeper.table.compaction.strategy.class": "BasicCompactionStrategy",
        "sleeper.table.compaction.files.batch.size": "3",
    }
    table = instance.create_table("t", json.dumps(schema), properties=properties)
    # The second compaction leaves out the largest file.
    for ids in (range(9), [1]):
        for _ in range(3):
            table.ingest([{"id": i, "total": 1} for i in ids])
        instance.run_until_idle()
    with pytest.raises(InvalidRequestError, match="has files with common keys"):
        instance.publish_iceberg("t")


def test_a_table_of_a_backup_replaces_versions_of_other_transactions(
    instance: sleeper.Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(instance)
    table.ingest(rows(1))
    published = instance.publish_iceberg("t")
    path = Path(published.metadata_url.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    metadata["snapshots"][-1]["timestamp-ms"] -= 1
    path.write_text(json.dumps(metadata))
    monkeypatch.setattr(publication, "find_changes", None)
    table.ingest(rows(2))
    after = instance.publish_iceberg("t")
    assert (after.rows, after.snapshots) == (2, 1)
    assert "parent-snapshot-id" not in after.metadata["snapshots"][0]


def test_a_copy_of_an_instance_publishes_its_own_files(
    instance: sleeper.Instance, tmp_path: Path
) -> None:
    table = create(instance, [10])
    table.ingest(rows(1, 20))
    table.delete(keys=[[1]])
    instance.publish_iceberg("t")
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "instance", copy)
    with (
        contextlib.closing(open_instance(str(copy), read_only=True)) as read_only,
        pytest.raises(NotFoundError, match="was not published"),
    ):
        find_published(read_only.table("t"))
    with sleeper.open_instance(copy) as opened:
        published = opened.publish_iceberg("t")
        assert all(url.startswith(f"file://{copy}/") for url in manifests(published))
        assert (published.rows, published.snapshots) == (1, 1)
        assert not opened.publish_iceberg("t").is_new


def test_a_moved_instance_publishes_its_files_where_they_are(
    instance: sleeper.Instance, tmp_path: Path
) -> None:
    location = tmp_path / "published"
    table = create(instance, [10], iceberg__location=str(location))
    table.ingest(rows(1, 20))
    instance.publish_iceberg("t")
    instance.close()
    moved = tmp_path / "moved"
    (tmp_path / "instance").rename(moved)
    with (
        contextlib.closing(open_instance(str(moved), read_only=True)) as read_only,
        pytest.raises(NotFoundError, match="was not published"),
    ):
        find_published(read_only.table("t"))
    # A backup has no record of the location.
    (records,) = moved.rglob("iceberg/locations")
    shutil.rmtree(records)
    with sleeper.open_instance(moved) as opened:
        published = opened.publish_iceberg("t")
        assert (published.is_new, published.snapshots) == (True, 1)
        listed = located(published).read_list(current_snapshot(published.metadata)["manifest-list"])
        files = [each for manifest in listed for each in located(published).read_manifest(manifest)]
        assert all(each.path.startswith(f"file://{moved}/") for each in files)
        assert not opened.publish_iceberg("t").is_new
    with contextlib.closing(open_instance(str(moved))) as ports:
        assert [each.location for each in find_publications(ports)] == [f"file://{location}"]
        assert find_published(ports.table("t")).url == published.metadata_url


def test_expired_versions_of_a_snapshot_table_are_not_listed(
    instance: sleeper.Instance, ports: Ports
) -> None:
    table = create(instance, type="snapshot", gc__delay__minutes="0")
    store = ports.table("t").state
    table.ingest(rows(1))
    # It keeps the horizon where it is.
    create_hold(store, "long", "reader", table.version, ports.clock(), DAY_SECONDS)
    table.ingest(rows(2))
    expired = instance.publish_iceberg("t").number
    table.ingest(rows(3, 4))
    store.holds.release([hold.id for hold in store.holds.unexpired() if hold.id != "long"])
    table.expire_snapshots()
    assert table.gc().files == 1
    published = instance.publish_iceberg("t")
    assert (published.rows, published.files) == (2, 1)
    assert expired not in [each["snapshot-id"] for each in published.metadata["snapshots"]]


def test_few_snapshots_are_listed(
    instance: sleeper.Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_of_table, "_SNAPSHOTS_MAX", 2)
    table = create(instance)
    numbers = []
    for number in range(3):
        table.ingest(rows(number))
        published = instance.publish_iceberg("t")
        numbers.append(published.number)
    assert [each["snapshot-id"] for each in published.metadata["snapshots"]] == numbers[1:]


def test_late_publications_are_problems(instance: sleeper.Instance, ports: Ports) -> None:
    table = create(instance, iceberg__publish__seconds="60")
    instance.publish_iceberg("t")
    later = replace(ports, clock=lambda: ports.clock() + 300_000)
    table.set_properties({"sleeper.table.gc.delay.minutes": "1"})
    assert [*find_problems(later)] == []
    table.ingest(rows(1))
    assert [*find_problems(ports)] == []
    (problem,) = find_problems(later)
    assert (problem.name, problem.reason) == ("t", "the published version is 1 transaction behind")
    assert [each.behind for each in find_publications(ports)] == [1]
    instance.publish_iceberg("t")
    assert [*find_problems(later)] == []


def test_tables_of_latest_rows_must_be_compacted_once(
    instance: sleeper.Instance, ports: Ports
) -> None:
    table = create(instance, rows="latest")
    table.ingest(rows(1, 3))
    table.ingest(rows(2))
    with pytest.raises(InvalidRequestError, match="expected compacted leaves"):
        instance.publish_iceberg("t")
    assert compact_to_publish(ports.table("t")) == 1
    assert instance.publish_iceberg("t").rows == 3


@pytest.mark.slow
def test_snapshot_tables_and_clones_are_published(
    instance: sleeper.Instance, readers: Readers
) -> None:
    loaded = create(instance, [5], type="snapshot")
    with pytest.raises(InvalidRequestError, match="there is no snapshot yet"):
        instance.publish_iceberg("t")
    for count in (10, 3):
        loaded.ingest(rows(*range(count)))
        published = instance.publish_iceberg("t")
        assert readers.read("pyiceberg", metadata=published.metadata_url).num_rows == count
    source = instance.create_table("source", json.dumps(SCHEMA), split_points=[5])
    source.ingest(rows(*range(10)))
    source.delete(keys=[[3]])
    instance.clone_table("source", "clone")
    instance.table("clone").delete(ranges=[(6, 8)])
    published = instance.publish_iceberg("clone")
    found = readers.read("pyiceberg", metadata=published.metadata_url)
    assert count_rows(found) == count_rows(instance.table("clone").query().to_arrow())


@pytest.mark.slow
def test_json_is_text(instance: sleeper.Instance, readers: Readers) -> None:
    fields = [{"name": "doc", "type": "JSONType"}]
    table = instance.create_table("t", json.dumps({**SCHEMA, "valueFields": fields}))
    table.ingest([{"id": 1, "doc": {"price": 1.5}}])
    published = instance.publish_iceberg("t")
    # Polars 2.1 takes the column as bytes, and fails.
    for engine in {*ENGINES} - {"polars"}:
        found = readers.read(engine, metadata=published.metadata_url)
        assert [json.loads(text) for text in found["doc"].to_pylist()] == [{"price": 1.5}], engine


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "refusing"),
    [
        (write_file_of_release_0_2, {"daft"}),
        (write_file_of_fields, {"daft", "duckdb-iceberg", "polars"}),
    ],
)
def test_engines_read_files_of_earlier_versions(
    instance: sleeper.Instance, ports: Ports, readers: Readers, write: Any, refusing: set[str]
) -> None:
    table = create(instance)
    table.ingest(rows(1, 2))
    root = ports.storage.root
    with ports.table("t").state.reading() as state:
        (file,) = all_files(state)
    path = Path(root.url_of(file.file.path))
    stored: pa.Table = table.query().to_arrow()
    write(path, stored, table.schema)
    published = instance.publish_iceberg("t")
    for engine in {*ENGINES} - refusing:
        found = readers.read(engine, metadata=published.metadata_url)
        assert count_rows(found) == count_rows(stored), engine
