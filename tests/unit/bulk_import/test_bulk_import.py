"""Bulk imports on a cluster of one process store each row once in its leaf."""

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sleeper.bulk_import.run import (
    BulkImportResult,
    BulkImportTable,
    plan_presplit,
    read_leaves,
    run_bulk_import,
)
from sleeper.bulk_import.splits import InputSplit, KeySample, SplitSample, plan_splits, read_split
from sleeper.clock import system_clock
from sleeper.datafiles.arrow import arrow_type
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge import sort
from sleeper.datafiles.merge.runs import Run, write_run
from sleeper.errors import InvalidRequestError, StateMovedOnError, UnavailableError
from sleeper.local.state_store import open_state_store
from sleeper.partitions.partition import (
    ROOT_PARTITION_ID,
    Partition,
    new_partition_id,
    split_region,
    tree_from_split_points,
)
from sleeper.partitions.region import whole_region
from sleeper.schema.key_values import check_key_value
from sleeper.schema.model import (
    PLAIN_KEY_TYPES,
    DecimalType,
    Field,
    FieldType,
    Key,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    schema_to_json,
)
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.storage.location import DataRoot
from sleeper.storage.source_options import make_source_options
from tests.unit.bulk_import.in_process import InProcessCluster

SCHEMA = Schema(
    (Field("k", PrimitiveType.STRING),),
    (Field("s", PrimitiveType.INT),),
    (Field("v", PrimitiveType.LONG, nullable=True),),
)
MIB = 1024**2
MOMENT = datetime(2026, 1, 31, 12, 0, 0, 5_000, tzinfo=UTC)
Row = tuple[str, int, int | None]


def make_table(folder: Path, partitions: list[Partition], schema: Schema) -> BulkImportTable:
    state = open_state_store(folder / "state.db")
    state.commit(InitialiseTable(schema_to_json(schema), tuple(partitions)))
    spill = folder / "spill"
    spill.mkdir()
    engine = EngineSettings(spill, memory_bytes=64 * MIB)
    root = DataRoot(folder / "data")
    return BulkImportTable("0a0b0c0d", schema, state, root, engine, system_clock)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[BulkImportTable]:
    table = make_table(tmp_path, tree_from_split_points(SCHEMA, ["g", "p"]), SCHEMA)
    yield table
    assert list((tmp_path / "spill").iterdir()) == []
    table.state.close()


def write(path: Path, rows: list[Row], group_rows: int = 100) -> Path:
    columns = {"s": [r[1] for r in rows], "v": [r[2] for r in rows], "k": [r[0] for r in rows]}
    kinds = pa.schema([("s", pa.int64()), ("v", pa.int64()), ("k", pa.string())])
    pq.write_table(pa.table(columns, kinds), path, row_group_size=group_rows)
    return path


def run(
    table: BulkImportTable, cluster: InProcessCluster, *paths: Path, job_id: str = "job"
) -> BulkImportResult:
    request = json.dumps([str(p) for p in paths])
    return run_bulk_import(table, job_id, paths, request, lambda: cluster)


def read_rows(table: BulkImportTable) -> list[tuple[object, ...]]:
    """The rows of all files. Each file is sorted, and lies in the leaf that refers to it."""
    results: list[tuple[object, ...]] = []
    fields = table.schema.row_keys
    is_plain = all(field.type in PLAIN_KEY_TYPES for field in fields)

    def key(row: tuple[Any, ...]) -> Key:
        values = row[: len(fields)]
        return values if is_plain else tuple(map(check_key_value, fields, values))

    with table.state.reading() as state:
        regions = {p.id: p.region for p in state.partitions.leaves()}
        for reference in state.files.references():
            whole = pq.read_table(table.root.url_of(reference.path))
            ids = [int(field.metadata[b"PARQUET:field_id"]) for field in whole.schema]
            assert ids == [*range(1, len(ids) + 1)]
            content = whole.to_pylist()
            rows = [tuple(r.values()) for r in content]
            assert rows == sorted(rows, key=lambda r: r[: len(table.schema.keys)])
            assert all(regions[reference.partition_id].contains(key(r)) for r in rows)
            assert len(rows) == reference.rows
            results += rows
    return sorted(results, key=repr)


def some_rows(count: int) -> list[Row]:
    return [
        (f"{chr(97 + i * 7 % 26)}{i * 31 % 97}", i % 11, i if i % 3 else None) for i in range(count)
    ]


def test_rows_of_all_formats_are_stored_once(table: BulkImportTable, tmp_path: Path) -> None:
    rows = some_rows(1000)
    write(tmp_path / "a.parquet", rows)
    with gzip.open(tmp_path / "b.csv.gz", "wt") as text:
        text.write("k,s,v\nb,1,\nz,2,5\n")
    (tmp_path / "c.jsonl").write_text('{"k":"q","s":3,"v":7}\n')
    paths = [tmp_path / name for name in ("a.parquet", "b.csv.gz", "c.jsonl")]
    result = run(table, InProcessCluster(), *paths)
    more: list[Row] = [("b", 1, None), ("z", 2, 5), ("q", 3, 7)]
    assert read_rows(table) == sorted([*rows, *more], key=repr)
    assert (result.rows, result.files) == (1003, 3)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    keys=st.lists(st.text("abé\U0001f600", max_size=3), min_size=1, max_size=300),
    group_rows=st.integers(1, 80),
    leaves_min=st.integers(1, 4),
    parallelism=st.integers(1, 4),
)
def test_any_division_of_the_work_stores_rows_once(
    tmp_path_factory: pytest.TempPathFactory,
    keys: list[str],
    group_rows: int,
    leaves_min: int,
    parallelism: int,
) -> None:
    folder = tmp_path_factory.mktemp("table")
    table = make_table(folder, tree_from_split_points(SCHEMA, ["b"]), SCHEMA)
    rows: list[Row] = [(key, i, i) for i, key in enumerate(keys)]
    path = write(folder / "a.parquet", rows, group_rows)
    run(replace(table, leaves_min=leaves_min), InProcessCluster(parallelism, runs=2), path)
    assert read_rows(table) == sorted(rows, key=repr)
    table.state.close()


def test_repeated_tasks_add_no_duplicate_rows(table: BulkImportTable, tmp_path: Path) -> None:
    rows = some_rows(5000)
    path = write(tmp_path / "a.parquet", rows)
    run(table, InProcessCluster(runs=3), path)
    assert read_rows(table) == sorted(rows, key=repr)
    files = list((tmp_path / "data").rglob("*.parquet"))
    with table.state.reading() as state:
        assert state.files.totals().files * 3 == len(files)


def test_values_of_every_type_are_imported(tmp_path: Path) -> None:
    kinds: dict[str, tuple[FieldType, pa.DataType, list[Any]]] = {
        "bytes": (PrimitiveType.BYTE_ARRAY, pa.large_binary(), [b"", b"\x00\xff" * 20, None]),
        "flag": (PrimitiveType.BOOLEAN, pa.bool_(), [True, None, False]),
        "float": (PrimitiveType.FLOAT, pa.float64(), [0.5, None, -0.0]),
        "time": (PrimitiveType.TIMESTAMP, pa.timestamp("ms", "Asia/Tokyo"), [MOMENT, None]),
        "day": (PrimitiveType.DATE, pa.date32(), [MOMENT.date(), None]),
        "money": (DecimalType(30, 4), pa.decimal128(38, 4), [Decimal("-1.2500"), None]),
        "list": (ListType(PrimitiveType.STRING), pa.large_list(pa.string()), [["é"], [], None]),
        "map": (
            MapType(PrimitiveType.STRING, PrimitiveType.TIMESTAMP),
            pa.map_(pa.string(), pa.timestamp("us", "UTC")),
            [[("x", MOMENT)], [], None],
        ),
    }
    values = tuple(Field(name, kind, nullable=True) for name, (kind, _, _) in kinds.items())
    schema = Schema((Field("key", PrimitiveType.BYTE_ARRAY),), (), values)
    table = make_table(tmp_path, tree_from_split_points(schema, [b"\x40"]), schema)
    count = 500
    columns = {"key": pa.array([bytes([n % 256, n % 7]) for n in range(count)])}
    for name, (_, kind, some) in kinds.items():
        columns[name] = pa.array([some[n % len(some)] for n in range(count)], kind)
    source = pa.table(columns)
    pq.write_table(source, tmp_path / "a.parquet", row_group_size=100)
    assert run(table, InProcessCluster(runs=2), tmp_path / "a.parquet").rows == count
    assert read_rows(table) == sorted((tuple(r.values()) for r in source.to_pylist()), key=repr)
    table.state.close()


def test_keys_of_times_dates_booleans_and_decimals_are_imported(tmp_path: Path) -> None:
    kinds = [PrimitiveType.TIMESTAMP, PrimitiveType.DATE, PrimitiveType.BOOLEAN, DecimalType(9, 2)]
    schema = Schema(tuple(Field(f"k{n}", kind) for n, kind in enumerate(kinds)))
    points = [MOMENT + timedelta(hours=100), "2200-01-01"]
    table = make_table(tmp_path, tree_from_split_points(schema, points), schema)
    rows = [
        (
            MOMENT + timedelta(hours=n),
            (MOMENT + timedelta(days=n)).date(),
            n % 2 == 0,
            Decimal(n) / 4,
        )
        for n in reversed(range(300))
    ]
    columns = zip(*rows, strict=True)
    source = [pa.array(c, arrow_type(k)) for c, k in zip(columns, kinds, strict=True)]
    names = [field.name for field in schema.fields]
    pq.write_table(pa.table(source, names), tmp_path / "a.parquet", row_group_size=70)
    assert run(table, InProcessCluster(runs=2), tmp_path / "a.parquet").rows == len(rows)
    assert read_rows(table) == sorted(rows, key=repr)
    with table.state.reading() as state:
        assert len({each.partition_id for each in state.files.references()}) == 2
    table.state.close()


def test_frequent_key_is_written_by_several_tasks(table: BulkImportTable, tmp_path: Path) -> None:
    rows: list[Row] = [("same", i % 5, i) for i in range(400_000)]
    paths = [write(tmp_path / f"{n}.parquet", rows, 50_000) for n in range(2)]
    cluster = InProcessCluster(parallelism=4, runs=2)
    result = run(
        replace(table, engine=replace(table.engine, memory_bytes=16 * MIB)), cluster, *paths
    )
    assert result.rows == 800_000
    assert sum(cluster.task_rows) == 800_000
    assert max(cluster.task_rows) < 400_000


class BlindCluster(InProcessCluster):
    """Reports that rows take no memory, so that slots have their maximum size."""

    def sample(
        self, splits: Sequence[InputSplit], schema: Schema, keys_max: int
    ) -> list[SplitSample]:
        result = super().sample(splits, schema, keys_max)
        return [replace(item, bytes=0) for item in result]


def test_slot_beyond_memory_spills(
    table: BulkImportTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spilled: list[Path] = []

    def spy(folder: Path, schema: Schema, batches: Iterable[pa.RecordBatch]) -> Run:
        spilled.append(folder)
        return write_run(folder, schema, batches)

    monkeypatch.setattr(sort, "write_run", spy)
    rows: list[Row] = [(f"{i * 7919 % 300_007:040d}", i % 5, i) for i in range(300_000)]
    path = write(tmp_path / "a.parquet", rows, 50_000)
    small = replace(table, engine=replace(table.engine, memory_bytes=16 * MIB))
    assert run(small, BlindCluster(parallelism=1), path).rows == 300_000
    assert len(spilled) > 2
    with table.state.reading() as state:
        files = sorted(state.files.all(), key=lambda file: file.smallest_key)
    read = [pq.read_table(table.root.url_of(file.path)).column("k") for file in files]
    assert [k for column in read for k in column.to_pylist()] == sorted(r[0] for r in rows)


def test_online_table_of_few_leaves_is_presplit(table: BulkImportTable, tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", some_rows(5000))
    offline = replace(table, leaves_min=5, is_online=False)
    run(offline, InProcessCluster(), path, job_id="offline")
    with table.state.reading() as state:
        assert len(list(state.partitions.leaves())) == 3
    run(replace(offline, is_online=True), InProcessCluster(), path, job_id="online")
    with table.state.reading() as state:
        assert len(list(state.partitions.leaves())) >= 5


def test_concurrently_split_leaf_keeps_its_rows(table: BulkImportTable, tmp_path: Path) -> None:
    rows = some_rows(300)
    path = write(tmp_path / "a.parquet", rows)

    def split() -> None:
        sample = KeySample(3, 3, ((("a",), 1.0), (("b",), 1.0), (("c",), 1.0)))
        table.state.commit(*plan_presplit(read_leaves(table.state), sample, 2))

    result = run(table, InProcessCluster(before_write=split), path)
    with table.state.reading() as state:
        assert state.files.totals().rows == result.rows == 300
        assert len(list(state.partitions.leaves())) == 4


def test_leaves_cut_on_a_later_field_have_their_rows(tmp_path: Path) -> None:
    schema = Schema((Field("a", PrimitiveType.LONG), Field("b", PrimitiveType.LONG)))
    root = Partition(ROOT_PARTITION_ID, whole_region(schema), None, is_leaf=False)
    low, high = split_region(root.region, 1, 50)
    left, right = split_region(high, 0, 20)
    inner = Partition(new_partition_id(), high, root.id, is_leaf=False)
    partitions = [root, Partition(new_partition_id(), low, root.id), inner]
    partitions += [Partition(new_partition_id(), r, inner.id) for r in (left, right)]
    table = make_table(tmp_path, partitions, schema)
    rows = [(i * 37 % 40, i * 61 % 100) for i in range(3000)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [r[0] for r in rows], "b": [r[1] for r in rows]}), path)
    run(table, InProcessCluster(), path)
    assert read_rows(table) == sorted(rows, key=repr)
    table.state.close()


def test_repeated_job_starts_no_cluster(table: BulkImportTable, tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", some_rows(10))
    first = run(table, InProcessCluster(), path)

    def refuse() -> InProcessCluster:
        raise AssertionError("a cluster was started for nothing")

    again = run_bulk_import(table, "job", [path], json.dumps([str(path)]), refuse)
    assert (again.done_before, again.number) == (True, first.number)
    with pytest.raises(InvalidRequestError, match="was used by transaction 2 for other files"):
        run_bulk_import(table, "job", [path], "other", refuse)
    assert len(read_rows(table)) == 10


def test_concurrent_bulk_imports_of_one_job_commit_once(
    table: BulkImportTable, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.parquet", some_rows(100))
    both = []
    rival = InProcessCluster(before_write=lambda: both.append(run(table, InProcessCluster(), path)))
    both.append(run(table, rival, path))
    assert [result.done_before for result in both] == [False, True]
    assert len(read_rows(table)) == 100


def test_import_into_a_deleted_table_adds_nothing(table: BulkImportTable, tmp_path: Path) -> None:
    def delete_table() -> None:
        raise StateMovedOnError("table 't' was deleted")

    path = write(tmp_path / "a.parquet", some_rows(100))
    with pytest.raises(StateMovedOnError, match="was deleted"):
        run(replace(table, check_active=delete_table), InProcessCluster(), path)
    assert read_rows(table) == []


def test_import_survives_a_failed_table_lookup(
    table: BulkImportTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("sleeper.retries.sleep", waits.append)
    failures = [UnavailableError("no answer"), UnavailableError("no answer")]

    def check_active() -> None:
        if failures:
            raise failures.pop()

    path = write(tmp_path / "a.parquet", some_rows(10))
    result = run(replace(table, check_active=check_active), InProcessCluster(), path)
    assert (result.rows, len(waits)) == (10, 2)


def test_empty_row_groups_are_skipped(table: BulkImportTable, tmp_path: Path) -> None:
    rows = some_rows(200)
    whole = pq.read_table(write(tmp_path / "whole.parquet", rows))
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(path, whole.schema) as writer:
        for part in (whole.slice(0, 0), whole.slice(0, 100), whole.slice(0, 0), whole.slice(100)):
            writer.write_table(part)
    assert pq.ParquetFile(path).metadata.num_row_groups == 4
    assert run(table, InProcessCluster(), path).rows == 200
    assert read_rows(table) == sorted(rows, key=repr)


def test_import_without_rows_is_committed(table: BulkImportTable, tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("k,s,v\n")
    (tmp_path / "c.jsonl").write_text("")
    paths = [write(tmp_path / "a.parquet", []), tmp_path / "b.csv", tmp_path / "c.jsonl"]
    result = run(table, InProcessCluster(), *paths)
    assert (result.rows, result.files) == (0, 0)
    assert run(table, InProcessCluster(), *paths).done_before


def test_options_of_the_job_say_how_files_are_read(table: BulkImportTable, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("Łódź~1~2\n".encode("cp1250"))
    options = make_source_options(
        format="csv", delimiter="~", encoding="cp1250", columns=("k", "s", "v")
    )
    assert run(replace(table, options=options), InProcessCluster(), path).rows == 1
    assert [row[0] for row in read_rows(table)] == ["Łódź"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "k,s,v\na,1,2\nb,x,3\n", "a.csv, row 2: field 's' .IntType.: 'x'"),
        ("a.csv", "k,v\na,1\n", "a.csv: columns do not fit the table: missing: 's'"),
        ("a.jsonl", '{"k":"a","s":1}\n{"k":null,"s":1}\n', "a.jsonl, row 2: field 'k'"),
        ("a.parquet", "torn", "a.parquet: not a readable Parquet file"),
        ("a.txt", "?", "a.txt: unknown format"),
    ],
)
def test_refused_job_names_the_place_of_the_fault(
    table: BulkImportTable, tmp_path: Path, name: str, content: str, message: str
) -> None:
    good = write(tmp_path / "good.parquet", some_rows(10))
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidRequestError, match=message):
        run(table, InProcessCluster(), good, tmp_path / name)
    assert read_rows(table) == []


def test_too_large_value_is_named_by_row_group_and_row(
    table: BulkImportTable, tmp_path: Path
) -> None:
    rows = some_rows(250)
    rows[220] = ("x", 2**40, 1)
    path = write(tmp_path / "a.parquet", rows, group_rows=100)
    with pytest.raises(InvalidRequestError, match=r"a\.parquet, row group 2, row 221: field 's'"):
        run(table, InProcessCluster(), path)


def test_changed_input_is_not_committed(table: BulkImportTable, tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", some_rows(100))
    changing = InProcessCluster(before_write=lambda: write(path, some_rows(90)))
    with pytest.raises(UnavailableError, match=r"90 rows written \(expected 100\)"):
        run(table, changing, path)
    assert read_rows(table) == []


def test_splits_contain_every_row_group_once(tmp_path: Path) -> None:
    rows: list[Row] = [(f"{i:020d}" * 20, i, i) for i in range(60_000)]
    path = write(tmp_path / "a.parquet", rows, group_rows=1000)
    splits = plan_splits([path], SCHEMA, parallelism=2, bytes_max=128 * MIB)
    assert len(splits) > 1
    assert [g for split in splits for g in split.row_groups or ()] == list(range(60))
    read = [b.column("s") for split in splits for b in read_split(split, SCHEMA)]
    assert pa.chunked_array(read).to_pylist() == list(range(60_000))
