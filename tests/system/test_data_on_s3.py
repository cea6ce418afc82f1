"""The engine with its data in a bucket of a real S3 server, and its state on local disk."""

import gzip
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.plan import merge
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.datafiles.merge.steps import TableIterators
from sleeper.datafiles.verification import ExpectedFile, verify_file
from sleeper.datafiles.write.partitioned import FileStrategy
from sleeper.errors import (
    DataError,
    InvalidRequestError,
    SleeperError,
    StateMovedOnError,
    UnavailableError,
)
from sleeper.files import CHECKSUM_SUFFIX, DataFile
from sleeper.ingest.parts import begin_parts, write_part
from sleeper.ingest.run import IngestResult, IngestTable, commit_new_files, ingest_files
from sleeper.local.state_store import open_state_store
from sleeper.partitions.partition import tree_from_split_points
from sleeper.query.distributed.follow import plan_feed
from sleeper.query.distributed.read import plan_read, read_part
from sleeper.query.engine import QueryEngine, QuerySettings, QueryTable
from sleeper.query.request import Query, make_key_regions, make_range_region
from sleeper.query.run import run_query
from sleeper.query.sql.explain import explain_sql
from sleeper.query.sql.statement import run_sql
from sleeper.schema.model import schema_to_json
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.storage.bucket import Bucket, Credentials, open_bucket
from sleeper.storage.bucket_folder import s3_file
from sleeper.storage.location import DataRoot
from tests.tables.data_table import LONG_SCHEMA, OBJECTS_PER_FILE, DataTable
from tests.tables.watched_ports import TABLE_ID

SHARED = FileStrategy.ONE_REFERENCE_PER_LEAF
BY_LEAF = FileStrategy.ONE_FILE_PER_LEAF


@pytest.fixture
def table(tmp_path: Path, data_bucket: Bucket) -> Iterator[DataTable]:
    data_table = DataTable(tmp_path, bucket=data_bucket)
    yield data_table
    data_table.close()
    # The session of an open engine has a folder and a marker of its own.
    left = [p.name for p in data_table.engine.spill_folder.iterdir()]
    assert [name for name in left if not name.startswith(("datafusion-", "session-"))] == []


@pytest.fixture
def engine(table: DataTable) -> QueryEngine:
    return QueryEngine(QuerySettings(table.engine))


def make_query_table(table: DataTable) -> QueryTable:
    return QueryTable("t", table.store, table.root)


def keys(table: DataTable, engine: QueryEngine, query: Query) -> list[int]:
    return run_query(query, make_query_table(table), engine).read_all().column(0).to_pylist()


def sql(table: DataTable, engine: QueryEngine, statement: str) -> list[dict]:
    return run_sql(statement, {"t": lambda: make_query_table(table)}, engine).read_all().to_pylist()


def faults(table: DataTable) -> list[object]:
    return [
        f
        for file in table.files()
        for f in verify_file(table.root, LONG_SCHEMA, _expect_file(file))
    ]


def _expect_file(file: DataFile) -> ExpectedFile:
    return ExpectedFile(file)


def test_a_table_lives_from_ingest_to_collection(table: DataTable, engine: QueryEngine) -> None:
    for start in range(4):
        table.ingest(range(start, 4000, 4), strategy=(SHARED, BY_LEAF)[start % 2])
    assert keys(table, engine, Query(make_key_regions(LONG_SCHEMA, [(7,), (3999,), (5000,)]))) == [
        7,
        3999,
    ]
    assert keys(table, engine, Query()) == [*range(4000)]
    assert sql(table, engine, "SELECT count(*) AS n, max(key) AS m FROM t WHERE key >= 10") == [
        {"n": 3990, "m": 3999}
    ]
    table.split_all(threshold=1000)
    assert len(table.leaves()) > 2
    assert not [r for r in table.compact(full=True) if isinstance(r, SleeperError)]
    assert keys(table, engine, Query()) == [*range(4000)]
    assert faults(table) == []
    previous = len(table.paths_on_disk())
    table.clock.pass_minutes(60)
    assert table.collect().files == 4
    assert len(table.paths_on_disk()) == previous - 4 * OBJECTS_PER_FILE
    some = Query((make_range_region(LONG_SCHEMA, 900, 1100),))
    assert keys(table, engine, some) == [*range(900, 1100)]
    assert sql(table, engine, "SELECT count(*) AS n FROM t") == [{"n": 4000}]


def test_a_statement_is_explained_by_the_table_that_it_reads(
    table: DataTable, engine: QueryEngine
) -> None:
    for start in (0, 1000, 2000):
        table.ingest(range(start, start + 1000))
    result = explain_sql(
        "SELECT * FROM t WHERE key < 10", {"t": lambda: make_query_table(table)}, engine
    )
    (reads,) = result.reads
    assert (result.rows, reads.files, reads.files_of) == (10, 1, 3)
    assert 0 < reads.bytes_read <= reads.bytes


def test_many_files_are_merged_in_passes_through_local_disk(
    tmp_path: Path, data_bucket: Bucket
) -> None:
    table = DataTable(tmp_path, bucket=data_bucket, engine_changes={"merge_files_max": 3})
    for start in range(10):
        table.ingest(range(start, 1000, 10))
    assert [row[0] for row in table.rows()] == [*range(1000)]
    table.close()


def test_merged_files_of_fetched_inputs_are_uploaded_atomically(
    table: DataTable,
) -> None:
    for start in range(2):
        table.ingest(range(start, 60_000, 2))
    assert not [r for r in table.compact(full=True) if isinstance(r, SleeperError)]
    (file,) = table.files()
    assert CHECKSUM_SUFFIX in file.sidecars
    assert faults(table) == []
    assert [row[0] for row in table.rows()] == [*range(60_000)]
    assert list(table.engine.spill_folder.iterdir()) == []
    previous = table.paths_on_disk()
    with pytest.raises(UnavailableError), table.root.local_target(file.path, Path("/nowhere")):
        raise UnavailableError("stop")
    assert table.paths_on_disk() == previous


def test_missing_sketches_are_replaced_by_samples(table: DataTable) -> None:
    (file,) = table.ingest(range(1000))
    table.root.delete([file.path + ".sketches"])
    table.split(threshold=500)
    assert len(table.leaves()) == 2


def test_a_missing_object_moves_the_state_on_and_is_named(
    table: DataTable, engine: QueryEngine
) -> None:
    first, second = (table.ingest(range(n, 100, 2))[0] for n in (0, 1))
    table.root.delete([second.path])
    request = MergeRequest(LONG_SCHEMA, inputs(table, first.path, second.path))
    with pytest.raises(StateMovedOnError, match="missing"):
        list(merge(request, table.engine))
    with pytest.raises(DataError, match=second.path):
        keys(table, engine, Query())
    with pytest.raises(StateMovedOnError, match="missing"):
        sql(table, engine, "SELECT * FROM t")
    assert [f.fault for f in verify_file(table.root, LONG_SCHEMA, _expect_file(second))] == [
        "it is not there"
    ]


@pytest.mark.parametrize("damage", ["empty", "torn", "other"])
def test_a_torn_object_is_a_data_error_that_names_it(
    table: DataTable, engine: QueryEngine, damage: str
) -> None:
    (file,) = table.ingest(range(100))
    content = table.root.read(file.path)
    torn = {"empty": b"", "torn": content[:-100], "other": b"x" * len(content)}[damage]
    obstore.put(table.root.store, file.path, torn)
    with pytest.raises(DataError, match=file.path):
        keys(table, engine, Query())
    assert verify_file(table.root, LONG_SCHEMA, _expect_file(file))


def test_an_unresponsive_bucket_is_unavailable_and_not_damaged(table: DataTable) -> None:
    (file,) = table.ingest(range(100))
    (original,) = table.root.buckets
    lost = Bucket(
        original.name, original.prefix, "us-east-1", "http://127.0.0.1:9", original.credentials
    )
    settings = EngineSettings(table.engine.spill_folder, buckets=(lost,))
    with pytest.raises(UnavailableError):
        list(merge(MergeRequest(LONG_SCHEMA, inputs(table, file.path)), settings))


def test_refused_credentials_are_not_reported_as_damage(table: DataTable) -> None:
    (file,) = table.ingest(range(100))
    (original,) = table.root.buckets
    wrong = replace(original, credentials=Credentials("key", "wrong"))
    settings = EngineSettings(table.engine.spill_folder, buckets=(wrong,))
    with pytest.raises(UnavailableError):
        list(merge(MergeRequest(LONG_SCHEMA, inputs(table, file.path)), settings))


def test_default_credentials_come_from_the_environment(
    table: DataTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = table.ingest(range(10))
    (original,) = table.root.buckets
    assert original.credentials is not None
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", original.credentials.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", original.credentials.secret_access_key)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    plain = Bucket(original.name, original.prefix, endpoint=original.endpoint)
    assert DataRoot(plain).read(file.path) == table.root.read(file.path)
    settings = EngineSettings(table.engine.spill_folder, buckets=(plain,))
    batches = merge(MergeRequest(LONG_SCHEMA, inputs(table, file.path)), settings)
    assert sum(batch.num_rows for batch in batches) == 10


def test_snapshots_of_the_state_are_kept_beside_the_data(
    tmp_path: Path, data_bucket: Bucket
) -> None:
    root = DataRoot(data_bucket)
    store = open_state_store(tmp_path / "state.db", objects=root.store, table_id=TABLE_ID)
    store.commit_or_raise(
        InitialiseTable(schema_to_json(LONG_SCHEMA), tuple(tree_from_split_points(LONG_SCHEMA, [])))
    )
    assert store.save_snapshot() == store.newest_snapshot() == 1
    assert len(list(root.list_objects(TABLE_ID))) == 1
    store.close()


def test_orphans_are_listed_and_deleted(table: DataTable) -> None:
    (remaining,) = table.ingest(range(10))
    orphan = remaining.path.replace("/1", "/0", 1)
    with table.root.sink(orphan) as sink:
        sink.write(b"x")
    table.clock.now_ms += 20 * 24 * 3600 * 1000
    assert table.collect_orphans(dry_run=True).paths == [orphan]
    table.collect_orphans()
    assert orphan not in table.paths_on_disk()
    assert remaining.path in table.paths_on_disk()


def test_a_process_that_only_reads_and_writes_data_opens_no_state(
    table: DataTable, engine: QueryEngine
) -> None:
    ingest_table = IngestTable(
        TABLE_ID, LONG_SCHEMA, table.store, table.root, table.engine, table.clock
    )
    rows = pa.record_batch({"v": ["b", "a"], "key": [2, 1]})
    target = begin_parts(ingest_table, rows.schema, "(rows)")
    new = write_part(target, iter([rows]), "(part)", table.root, table.engine)
    assert commit_new_files(ingest_table, "j", target.start, new, "request").rows == 2
    plan = plan_read(Query(), make_query_table(table), engine, "tests", 1)
    feed = plan_feed(table.store, 0, table.number(), Query(), 1)
    version = table.number()
    for read, (part,) in (plan, feed):
        batches = read_part(read, part, table.root, TableIterators(), engine)
        assert pa.Table.from_batches(batches).to_pydict() == {"key": [1, 2], "v": ["a", "b"]}
    assert table.number() == version


# Files that users bring


def ingest(table: DataTable, source: Bucket, *names: str, job: str = "job") -> IngestResult:
    buckets = (*table.root.buckets, source)
    target = IngestTable(
        TABLE_ID,
        LONG_SCHEMA,
        table.store,
        table.root,
        EngineSettings(table.engine.spill_folder, buckets=buckets),
        table.clock,
    )
    return ingest_files(target, job, [s3_file(n, buckets) for n in names], request=repr(names))


def copy_file(source: Bucket, folder: str, name: str, first: int, kind: pa.DataType) -> str:
    """A Parquet file of ten rows, some of whose columns may need a cast; its key."""
    table = pa.table({"v": [f"v{n}" for n in range(10)], "key": range(first, first + 10)})
    sink = pa.BufferOutputStream()
    pq.write_table(table.cast(pa.schema([("v", pa.string()), ("key", kind)])), sink)
    key = f"{folder}/{name}"
    obstore.put(open_bucket(source), key, sink.getvalue().to_pybytes())
    return key


def test_files_of_another_bucket_are_ingested_by_every_form_of_name(
    table: DataTable, source_bucket: Bucket
) -> None:
    folder = f"in-{uuid.uuid4().hex}"
    copy_file(source_bucket, folder, "plain.parquet", 0, pa.int64())
    copy_file(source_bucket, folder, "narrow é #1 [x]*.parquet", 10, pa.int64())
    copy_file(source_bucket, folder, "cast.PARQUET", 20, pa.uint64())
    copy_file(source_bucket, f"{folder}/below/more.parquet", "part-0.parquet", 30, pa.int64())
    obstore.put(open_bucket(source_bucket), f"{folder}/below/_SUCCESS", b"")
    name = source_bucket.name
    result = ingest(
        table,
        source_bucket,
        f"s3://{name}/{folder}/plain.parquet",
        f"s3a://{name}/{folder}/narrow é #1 [x]*.parquet",
        f"{name}/{folder}/cast.PARQUET",
        f"{name}/{folder}/below",
    )
    assert result.rows == 40
    assert [row[0] for row in table.rows()] == [*range(40)]


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.jsonl", "rows.jsonl.gz"])
def test_text_files_of_a_bucket_are_ingested(
    table: DataTable, source_bucket: Bucket, name: str
) -> None:
    rows = [(n, f"v{n}") for n in range(5000)]
    if "csv" in name:
        text = "key,v\n" + "".join(f"{k},{v}\n" for k, v in rows)
    else:
        text = "".join(f'{{"key": {k}, "v": "{v}"}}\n' for k, v in rows)
    content = text.encode()
    key = f"{uuid.uuid4().hex}/{name}"
    obstore.put(
        open_bucket(source_bucket), key, gzip.compress(content) if "gz" in name else content
    )
    assert ingest(table, source_bucket, f"s3://{source_bucket.name}/{key}").rows == 5000
    assert [row[:2] for row in table.rows()] == rows


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("s3://{bucket}/nothing/here.parquet", "does not exist"),
        ("s3://{bucket}/nothing/", "does not exist"),
        ("s3://somebody-elses/file.parquet", "bucket somebody-elses is not an allowed source"),
        ("s3://{bucket}", "is not an S3 object"),
        ("s3://{bucket}/torn.parquet", "torn.parquet: not a readable Parquet file"),
    ],
)
def test_an_invalid_file_is_refused_by_name(
    table: DataTable, source_bucket: Bucket, name: str, reason: str
) -> None:
    obstore.put(open_bucket(source_bucket), "torn.parquet", b"PAR1 no more")
    with pytest.raises(InvalidRequestError, match=reason):
        ingest(table, source_bucket, name.format(bucket=source_bucket.name))
    assert table.files() == []


def inputs(table: DataTable, *paths: str) -> tuple[MergeInput, ...]:
    return tuple(MergeInput(table.root.url_of(p)) for p in paths)
