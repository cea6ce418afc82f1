"""Rows of splits, compared with the ingested rows."""

import base64
import datetime as dt
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sleeper.admin.schema import change_schema
from sleeper.admin.tables import create_table, delete_table
from sleeper.athena.connector import SpillBucket
from sleeper.athena.service import answer
from sleeper.compaction.plan import compact_table
from sleeper.datafiles.arrow import arrow_schema
from sleeper.errors import InvalidRequestError, NotFoundError, StateMovedOnError
from sleeper.garbage_collection.service import collect_table
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.processing.field_changes import DropField, RenameField
from sleeper.schema.model import schema_from_json
from sleeper.storage.bucket import Bucket
from sleeper.storage.location import DataRoot
from tests.clock import DAY_MS, FakeClock
from tests.examples import examples
from tests.system.bad_days import run_all
from tests.unit.athena.protocol import (
    Athena,
    Json,
    among,
    connector_of,
    from_to,
    plain_rows,
    ranges,
    read_block,
    text,
)
from tests.unit.athena.test_metadata import EVERY_TYPE

SCHEMA = """{"rowKeyFields":[{"name":"id","type":"LongType"}],
 "valueFields":[{"name":"v","type":"StringType","nullable":true},
                {"name":"Count","type":"LongType"}]}"""
LONG = pa.int64()


def rows(*numbers: int) -> pa.RecordBatch:
    values = [None if n % 5 == 0 else f"value {n % 3}" for n in numbers]
    return pa.record_batch({"id": numbers, "v": pa.array(values, pa.string()), "Count": numbers})


@pytest.fixture
def table(instance: Instance) -> str:
    create_table(instance, "t", SCHEMA, split_points=[100, 200])
    ingest_rows(instance, "t", [rows(*range(300))])
    return "t"


def test_every_type_round_trips(instance: Instance, athena: Athena):
    create_table(instance, "t", EVERY_TYPE)
    time = dt.datetime(2020, 2, 29, 1, 2, 3, 456_789, tzinfo=dt.UTC)
    common = {
        "yes": True,
        "f": 1.5,
        "d": -0.1,
        "t": time,
        "day": time.date(),
        "dec": Decimal("1.25"),
    }
    put_in = [
        {
            "id": 1,
            "at": 2,
            "s": "\u00e9\0",
            "bytes": b"\xff\0",
            **common,
            "doc": '{"a": 1.10}',
            "l": ["a", ""],
            "m": [("k", 1)],
        },
        {"id": 2, "at": -1, "s": None, "bytes": b"", **common, "doc": None, "l": [], "m": []},
    ]
    columns = arrow_schema(schema_from_json(EVERY_TYPE))
    batch = pa.RecordBatch.from_pylist([{**row, "Id": row["id"]} for row in put_in], columns)
    ingest_rows(instance, "t", [batch])
    schema = athena.schema("t")
    # Athena reads milliseconds.
    expected = [row | {"t": time.replace(microsecond=456_000, tzinfo=None)} for row in put_in]
    result = athena.query("t")
    assert result.schema.equals(schema)
    assert plain_rows(result) == expected
    chosen = athena.query("t", {"doc": among(pa.string(), '{"a": 1.10}')})
    assert chosen["id"].to_pylist() == [1]
    (split,) = athena.splits("t")
    spill = athena.read("t", split, inline_bytes=0)
    assert [plain_rows(b) for b in athena.batches(spill)] == [expected]


def test_the_requested_columns_are_returned_in_their_order(athena: Athena, table: str):
    result = athena.query(table, {"id": among(LONG, 7)}, columns=["count", "id"])
    assert result.to_pylist() == [{"count": 7, "id": 7}]
    assert result.schema.names == ["count", "id"]


def test_a_count_needs_no_columns(athena: Athena, table: str):
    read = athena.read(table, athena.splits(table)[0], columns=[])
    (batch,) = athena.batches(read)
    assert (batch.num_rows, batch.num_columns) == (100, 0)


def test_constraints_apply_to_columns_outside_the_request(athena: Athena, table: str):
    summary = {"v": among(pa.string(), "value 1"), "count": from_to(LONG, 0, 10)}
    result = athena.query(table, summary, columns=["id"])
    assert result["id"].to_pylist() == [1, 4, 7]


def test_null_is_returned_only_if_allowed(athena: Athena, table: str):
    in_ten = from_to(LONG, 0, 10)
    only_null = ranges(pa.string(), null=True)
    not_null = ranges(pa.string(), (None, "ABOVE", None, "BELOW"))
    assert athena.query(table, {"id": in_ten, "v": only_null})["id"].to_pylist() == [0, 5]
    assert athena.query(table, {"id": in_ten, "v": not_null}).num_rows == 8


def test_a_limit_counts_rows_that_meet_the_constraints(athena: Athena, table: str):
    (split,) = athena.splits(table, {"id": from_to(LONG, 100, 200)})

    def read(summary: Json, **more: Any) -> list[int]:
        (batch,) = athena.batches(athena.read(table, split, summary, **more))
        return batch["id"].to_pylist()

    v1 = {"v": among(pa.string(), "value 1")}
    assert read({}, limit=2) == [100, 101]
    assert read(v1, limit=2) == [103, 106]
    assert len(read(v1, limit=-1)) > 2
    # What else the request wants may leave out some of the first two.
    plan = {"substraitVersion": "1.0", "substraitPlan": "QUJD"}
    assert len(read(v1, limit=2, queryPlan=plan)) > 2
    assert read(v1, limit=2, queryPlan=None) == [103, 106]
    assert len(read(v1, limit=2, orderByClause=[{"columnName": "id"}])) > 2
    assert len(read(v1, limit=2, expression=[{"@type": "FunctionCallExpression"}])) > 2


def test_two_reads_of_a_split_return_equal_rows_under_different_keys(
    athena: Athena, instance: Instance, table: str
):
    split = athena.splits(table)[0]
    first = athena.read(table, split, inline_bytes=0)
    ingest_rows(instance, table, [rows(*range(0, 300, 3))])
    compact_table(instance, table, full=True)
    run_all(instance)
    second = athena.read(table, split, inline_bytes=0)
    keys = [{b["key"] for b in read["remoteBlocks"]} for read in (first, second)]
    assert not keys[0] & keys[1]
    assert all(key.startswith(split["spillLocation"]["key"] + ".") for key in keys[0] | keys[1])
    ids = [
        [n for b in athena.batches(read) for n in b["id"].to_pylist()] for read in (first, second)
    ]
    assert ids[0] == ids[1] == list(range(100))


@pytest.mark.parametrize("key_bytes", [32, 16, 0])
def test_many_rows_are_spilled_in_blocks_within_the_limit(
    athena: Athena, table: str, key_bytes: int
):
    split = athena.splits(table)[0]
    key = base64.b64decode(split["encryptionKey"]["key"])
    assert len(key) == 32
    shorter = {**split["encryptionKey"], "key": base64.b64encode(key[:key_bytes]).decode()}
    split["encryptionKey"] = shorter if key_bytes else None
    read = athena.read(table, split, block_bytes=500, inline_bytes=100)
    assert read["@type"] == "RemoteReadRecordsResponse"
    assert all(block["bucket"] == "spilled" for block in read["remoteBlocks"])
    batches = list(athena.batches(read))
    assert len(batches) > 3
    assert all(batch.nbytes <= 500 for batch in batches)
    assert [n for b in batches for n in b["id"].to_pylist()] == list(range(100))
    content = athena.connector.spill.root.read(read["remoteBlocks"][0]["key"])
    assert (b"value 1" in content) is (key_bytes == 0)


def test_a_row_larger_than_a_block_is_a_block(athena: Athena, table: str):
    (split,) = athena.splits(table, {"id": among(LONG, 1)})
    read = athena.read(table, split, {"id": among(LONG, 1, 2)}, block_bytes=1, inline_bytes=0)
    assert [b["id"].to_pylist() for b in athena.batches(read)] == [[1], [2]]


def test_rows_pass_through_the_tables_filters_and_aggregations(
    instance: Instance, athena: Athena, raw_athena: Athena
):
    create_table(
        instance,
        "t",
        '{"rowKeyFields":[{"name":"id","type":"LongType"}],'
        '"valueFields":[{"name":"n","type":"LongType"}]}',
        {"sleeper.table.aggregations": "sum(n)"},
    )
    for n in (1, 20):
        ingest_rows(instance, "t", [pa.record_batch({"id": [1, 2], "n": [n, 2 * n]})])
    assert athena.query("t").to_pydict() == {"id": [1, 2], "n": [21, 42]}
    # A constraint is of the sums, not of what is summed.
    assert athena.query("t", {"n": among(LONG, 21)}).to_pydict() == {"id": [1], "n": [21]}
    assert athena.query("t", {"n": among(LONG, 20)}).num_rows == 0
    result = raw_athena.query("t")
    assert sorted(result["n"].to_pylist()) == [1, 2, 20, 40]
    compact_table(instance, "t", full=True)
    run_all(instance)
    assert sorted(raw_athena.query("t")["n"].to_pylist()) == [21, 42]


def test_rows_pass_through_the_tables_iterator(
    instance: Instance, athena: Athena, raw_athena: Athena
):
    create_table(
        instance,
        "t",
        '{"rowKeyFields":[{"name":"id","type":"LongType"}],'
        '"sortKeyFields":[{"name":"at","type":"LongType"}],'
        '"valueFields":[{"name":"n","type":"LongType"}]}',
        {"sleeper.table.iterator.class.name": "LatestBySortKey"},
    )
    for place in (1, 2):
        ingest_rows(
            instance,
            "t",
            [pa.record_batch({"id": [7, 8], "at": [place, place], "n": [place, place]})],
        )
    assert athena.query("t", columns=["id", "n"]).to_pydict() == {"id": [7, 8], "n": [2, 2]}
    assert athena.query("t", {"n": among(LONG, 1)}).num_rows == 0
    assert raw_athena.query("t", {"n": among(LONG, 1)})["id"].to_pylist() == [7, 8]


def test_raw_rows_can_be_hidden(athena: Athena, raw_athena: Athena, table: str):
    split = raw_athena.splits(table)[0]
    settings = replace(athena.connector.settings, shows_raw=False)
    hidden = replace(raw_athena, connector=replace(athena.connector, settings=settings))
    assert hidden.ask("ListSchemasRequest")["schemas"] == ["sleeper"]
    with pytest.raises(NotFoundError, match=r"unknown schema 'sleeper_raw' \(expected sleeper"):
        hidden.splits(table)
    values = {"schemaName": "sleeper_raw", "tableName": table}
    requested = athena.request("ReadRecordsRequest", tableName=values, split=split)
    requested |= {"schema": text(athena.schema(table)), "constraints": {"summary": {}}}
    requested |= {"maxBlockSize": 1, "maxInlineBlockSize": 1}
    with pytest.raises(NotFoundError, match="unknown schema 'sleeper_raw'"):
        answer(requested, hidden.connector)


def test_expired_rows_are_visible_only_as_raw_rows(
    instance: Instance, athena: Athena, raw_athena: Athena, clock: FakeClock
):
    create_table(
        instance,
        "t",
        '{"rowKeyFields":[{"name":"id","type":"LongType"}],'
        '"valueFields":[{"name":"at","type":"LongType"}]}',
        {"sleeper.table.filters": "ageOff(at,1000)"},
    )
    batch = pa.record_batch({"id": [1, 2], "at": [clock() - 5000, clock()]})
    ingest_rows(instance, "t", [batch])
    assert athena.query("t")["id"].to_pylist() == [2]
    splits = athena.splits("t")
    clock.now_ms += 10_000
    # Age-off uses the time of the version, not of the read.
    assert [b["id"].to_pylist() for s in splits for b in athena.batches(athena.read("t", s))] == [
        [2]
    ]
    assert raw_athena.query("t")["id"].to_pylist() == [1, 2]


def test_reads_renew_the_hold_that_keeps_a_split_s_version(
    instance: Instance, athena: Athena, clock: FakeClock, table: str
):
    splits = athena.splits(table)
    (hold,) = holds(instance)
    athena.read(table, splits[0])
    assert holds(instance) == [hold]
    for minutes in (40, 80, 120):
        clock.now_ms += 40 * 60_000
        athena.read(table, splits[0])
        (renewed,) = holds(instance)
        assert renewed.expiry_ms == clock() + 3_600_000, minutes
    compact_table(instance, table, full=True)
    run_all(instance)
    collect_table(instance, table)
    (batch,) = athena.batches(athena.read(table, splits[0]))
    assert batch.num_rows == 100


def test_a_split_of_a_collected_version_is_refused(
    instance: Instance, athena: Athena, clock: FakeClock, table: str
):
    splits = athena.splits(table)
    ingest_rows(instance, table, [rows(1)])
    compact_table(instance, table, full=True)
    run_all(instance)
    clock.now_ms += DAY_MS
    assert collect_table(instance, table).files > 0
    reason = r"version \d+ is no longer readable .*hold of 3600 seconds expired; run it again"
    with pytest.raises(StateMovedOnError, match=reason):
        athena.read(table, splits[0])


def test_a_split_is_read_with_the_schema_of_its_version(
    instance: Instance, athena: Athena, table: str
):
    old = athena.schema(table)
    split = athena.splits(table)[0]
    change_schema(instance, table, [RenameField("v", "w"), DropField("Count")])
    read = athena.read(table, split, columns=["v", "count"], schema=old)
    assert [b.num_rows for b in athena.batches(read)] == [100]
    assert athena.query(table).schema.names == ["id", "w"]


def holds(instance: Instance) -> list[Any]:
    return list(instance.table("t").state.holds.all())


def test_a_split_of_a_deleted_table_or_of_another_bucket_is_refused(
    instance: Instance, athena: Athena, table: str
):
    split = athena.splits(table)[0]
    elsewhere = {**split, "spillLocation": {**split["spillLocation"], "bucket": "other"}}
    with pytest.raises(InvalidRequestError, match="bucket is 'other'"):
        athena.read(table, elsewhere)
    schema = athena.schema(table)
    delete_table(instance, table)
    create_table(instance, table, SCHEMA)
    assert athena.schema(table) == schema
    with pytest.raises(NotFoundError, match="being deleted"):
        athena.read(table, split)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"encryptionKey": {"key": "AAAA", "nonce": "AAAA"}}, "3 bytes and a nonce of 3"),
        ({"encryptionKey": {"key": "?", "nonce": "AAAA"}}, "not base64"),
        ({"properties": {"version": "x", "region": "{}"}}, "are invalid"),
        ({"properties": {"version": "1", "region": "{}"}}, "'table'"),
        ({"spillLocation": {"bucket": "b"}}, "'key'"),
    ],
)
def test_an_invalid_split_is_refused_with_the_reason(
    athena: Athena, table: str, change: Json, reason: str
):
    with pytest.raises(InvalidRequestError, match=reason):
        athena.read(table, {**athena.splits(table)[0], **change})


IDS = st.integers(0, 40)
SUMMARIES = st.fixed_dictionaries(
    {},
    optional={
        "id": st.one_of(
            st.sets(IDS, max_size=5).map(lambda values: among(LONG, *sorted(values))),
            st.tuples(st.none() | IDS, st.none() | IDS).map(lambda pair: from_to(LONG, *pair)),
        ),
        "v": st.tuples(
            st.sets(st.sampled_from(["value 0", "value 1", "value 2"])), st.booleans()
        ).map(lambda sample: among(pa.string(), *sorted(sample[0]), null=sample[1])),
        "count": st.tuples(IDS, IDS).map(lambda pair: from_to(LONG, *pair)),
    },
)


@pytest.fixture(scope="module")
def grown_table() -> Iterator[Athena]:
    """Files of leaves, of more than one leaf, and compacted ones; small pieces and pages."""
    with tempfile.TemporaryDirectory() as folder:
        create_local_instance(Path(folder, "i"), "test")
        instance = open_local_instance(Path(folder, "i"), FakeClock())
        settings = {"sleeper.table.ingest.file.writing.strategy": "one_reference_per_leaf"}
        create_table(instance, "t", SCHEMA, settings, split_points=[10, 20, 30])
        ingest_rows(instance, "t", [rows(*range(0, 40, 2))])
        compact_table(instance, "t", full=True)
        run_all(instance)
        ingest_rows(instance, "t", [rows(*range(1, 40, 2))])
        connector = connector_of(instance, Path(folder, "spilled"))
        small = replace(connector.settings, split_bytes=2000, splits_per_page=2)
        yield Athena(replace(connector, settings=small))
        instance.close()


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SUMMARIES, st.sampled_from([10**6, 200]), st.integers(1, 4))
def test_rows_equal_those_of_a_plain_filter(
    grown_table: Athena, summary: Json, inline_bytes: int, leaves_per_split: int
):
    reader = with_gathered_leaves(grown_table, leaves_per_split)
    result = reader.query("t", summary, inline_bytes=inline_bytes, block_bytes=300)
    expected = [
        row
        for row in rows(*range(40)).rename_columns(["id", "v", "count"]).to_pylist()
        if all(meets(row[name], raw) for name, raw in summary.items())
    ]
    assert sorted(result.to_pylist(), key=lambda r: r["id"]) == expected


def with_gathered_leaves(athena: Athena, leaves_per_split: int) -> Athena:
    """The same with splits of so many leaves."""
    connector = athena.connector
    settings = replace(connector.settings, leaves_per_split=leaves_per_split)
    return replace(athena, connector=replace(connector, settings=settings))


def test_reading_a_split_of_many_leaves_commits_nothing(
    instance: Instance, athena: Athena, table: str
):
    (split,) = with_gathered_leaves(athena, 100).splits(table)
    with instance.table(table).state.reading() as state:
        original = state.number
    read = athena.read(table, split)
    assert [n for b in athena.batches(read) for n in b["id"].to_pylist()] == list(range(300))
    with instance.table(table).state.reading() as state:
        assert state.number == original


def meets(value: Any, raw: Json) -> bool:
    if value is None:
        return raw["nullAllowed"]
    return any(
        (low is None or low <= value) and (high is None or value < high or value == exactly)
        for low, high, exactly in map(plain_range, raw["ranges"])
    )


def plain_range(raw: Json) -> tuple[Any, Any, Any]:
    def value(marker: Json) -> Any:
        return None if marker["nullValue"] else read_block(marker["valueBlock"])["col1"][0].as_py()

    high = value(raw["high"])
    return value(raw["low"]), high, high if raw["high"]["bound"] == "EXACTLY" else None


def test_blocks_are_spilled_to_a_bucket_of_s3(athena: Athena, table: str, data_bucket: Bucket):
    on_s3 = SpillBucket(data_bucket.name, DataRoot(data_bucket))
    reader = Athena(replace(athena.connector, spill=on_s3))
    split = reader.splits(table)[0]
    read = reader.read(table, split, block_bytes=500, inline_bytes=0)
    assert {block["bucket"] for block in read["remoteBlocks"]} == {data_bucket.name}
    ids = [n for batch in reader.batches(read) for n in batch["id"].to_pylist()]
    assert ids == list(range(100))
