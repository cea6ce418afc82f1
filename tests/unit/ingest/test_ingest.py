"""Ingests store each row once in the committed files."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.clock import system_clock
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.sources.rejects import Rejects
from sleeper.datafiles.write import sorted_file
from sleeper.datafiles.write.partitioned import FileStrategy
from sleeper.errors import InvalidRequestError, StateMovedOnError, UnavailableError
from sleeper.ingest.run import IngestProgress, IngestTable, ingest_batches, ingest_files
from sleeper.jobs.ingest_job import INGEST_JOBS, IngestJob
from sleeper.local.state_store import open_state_store
from sleeper.partitions.partition import tree_from_split_points
from sleeper.schema.model import Field, PrimitiveType, Schema, schema_to_json
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.statestore.transactions.transaction import Outcome, Transaction
from sleeper.storage.location import DataRoot
from tests.clock import FakeClock

SCHEMA = Schema((Field("k", PrimitiveType.STRING),), (), (Field("n", PrimitiveType.INT),))


@pytest.fixture
def table(tmp_path: Path) -> Iterator[IngestTable]:
    state = open_state_store(tmp_path / "state.db")
    state.commit(
        InitialiseTable(schema_to_json(SCHEMA), tuple(tree_from_split_points(SCHEMA, ["g", "p"])))
    )
    spill = tmp_path / "spill"
    spill.mkdir()
    yield IngestTable(
        "0a0b0c0d",
        SCHEMA,
        state,
        DataRoot(tmp_path / "data"),
        EngineSettings(spill),
        system_clock,
    )
    assert list(spill.iterdir()) == []
    state.close()


def write(path: Path, rows: list[tuple[Any, Any]]) -> Path:
    kinds = pa.schema([("n", pa.int64()), ("k", pa.string())])
    columns = {"n": [r[1] for r in rows], "k": [r[0] for r in rows]}
    pq.write_table(pa.table(columns, kinds), path, row_group_size=2)
    return path


def read_rows(table: IngestTable) -> list[tuple[Any, Any]]:
    """The rows that the state store's references stand for, read without the engine."""
    results = []
    with table.state.reading() as state:
        regions = {p.id: p.region for p in state.partitions.all()}
        for reference in state.files.references():
            path = table.root.url_of(reference.path)
            rows = [tuple(r.values()) for r in pq.read_table(path).to_pylist()]
            mine = [r for r in rows if regions[reference.partition_id].contains(r[:1])]
            assert len(mine) == reference.rows
            results += mine
    return sorted(results)


@pytest.mark.parametrize("is_staged", [False, True])
def test_many_rows_are_sorted_and_written_in_one_plan(
    table: IngestTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_staged: bool
) -> None:
    monkeypatch.setattr(sorted_file, "KEPT_BYTES_MAX", 0)
    rows = [(f"{chr(97 + n % 26)}{n}", n) for n in range(60)]
    source = write(tmp_path / "rows.parquet", rows)
    counts: list[int] = []
    progress = IngestProgress(rows_written=counts.append)
    if is_staged:
        batches = pq.read_table(source).to_batches()
        result = ingest_batches(table, "job", batches, "request", progress)
    else:
        result = ingest_files(table, "job", [source], "request", progress=progress)
    assert (result.rows, result.files, sum(counts)) == (60, 1, 60)
    assert read_rows(table) == sorted(rows)
    with table.state.reading() as state:
        (file,) = state.files.all()
    metadata = pq.read_metadata(table.root.url_of(file.path))
    # Arrow writes so few rows otherwise.
    assert metadata.created_by.startswith("datafusion")


@pytest.mark.parametrize("strategy", FileStrategy)
def test_rows_of_all_formats_are_stored_once(
    table: IngestTable, tmp_path: Path, strategy: FileStrategy
) -> None:
    table = replace(table, strategy=strategy)
    first = write(tmp_path / "a.parquet", [("z", 1), ("a", 2), ("h", 3)])
    (tmp_path / "b.csv").write_text("k,n\nb,4\n")
    (tmp_path / "c.jsonl").write_text('{"k":"q","n":5}\n')
    read: list[int] = []
    outputs: list[int] = []
    result = ingest_files(
        table,
        "j1",
        [first, tmp_path / "b.csv", tmp_path / "c.jsonl"],
        "r",
        progress=IngestProgress(read.append, outputs.append),
    )
    assert (result.rows, result.number, result.done_before) == (5, 2, False)
    assert sum(read) == sum(outputs) == 5
    assert read_rows(table) == [("a", 2), ("b", 4), ("h", 3), ("q", 5), ("z", 1)]
    with table.state.reading() as state:
        assert state.files.totals().files == (
            3 if strategy is FileStrategy.ONE_FILE_PER_LEAF else 1
        )


def test_a_file_that_is_named_twice_is_read_twice(table: IngestTable, tmp_path: Path) -> None:
    folder = tmp_path / "day"
    folder.mkdir()
    path = write(folder / "a.parquet", [("a", 1)])
    other = write(folder / "b.parquet", [("b", 2)])
    (link := tmp_path / "link.parquet").symlink_to(path)
    sources = [path, other, path, link, folder / ".." / "day" / "a.parquet"]
    assert ingest_files(table, "j1", sources, "r").rows == 5
    assert read_rows(table) == [("a", 1)] * 4 + [("b", 2)]


def test_a_job_that_comes_again_changes_nothing(table: IngestTable, tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [("a", 1)])
    assert ingest_files(table, "j1", [path], "r").number == 2
    again = ingest_files(table, "j1", [path], "r")
    assert (again.number, again.done_before) == (2, True)
    assert read_rows(table) == [("a", 1)]


def test_reused_id_with_other_files_is_refused(table: IngestTable, tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [("a", 1)])
    ingest_files(table, "j1", [path], "r")
    with pytest.raises(InvalidRequestError, match="job id j1 was used by transaction 2"):
        ingest_files(table, "j1", [path], "another")
    assert read_rows(table) == [("a", 1)]


def test_concurrent_runs_of_one_job_commit_once(table: IngestTable, tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [("a", 1)])

    def first_run_overtakes(_: int) -> None:
        ingest_files(table, "j1", [path], "r")

    late = ingest_files(table, "j1", [path], "r", progress=IngestProgress(first_run_overtakes))
    assert late.number == 2
    assert read_rows(table) == [("a", 1)]


def test_ingest_older_than_half_the_orphan_age_is_not_committed(
    table: IngestTable, tmp_path: Path
) -> None:
    clock = FakeClock(system_clock())
    state = open_state_store(tmp_path / "state.db", clock)

    def slow_rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"k": ["a"], "n": [1]})
        clock.now_ms += 8 * 86_400_000

    with pytest.raises(StateMovedOnError, match="half the orphan age"):
        ingest_batches(replace(table, state=state, clock=clock), "j1", slow_rows(), "r")
    state.close()
    assert read_rows(table) == []


def test_one_bad_row_refuses_the_whole_job(table: IngestTable, tmp_path: Path) -> None:
    good = write(tmp_path / "good.parquet", [("a", 1)])
    bad = write(tmp_path / "bad.parquet", [("a", 1), ("b", 2), ("c", 2**31)])
    with pytest.raises(InvalidRequestError, match=r"bad\.parquet, row group 1, row 3: field 'n'"):
        ingest_files(table, "j1", [good, bad], "r")
    assert read_rows(table) == []


def test_error_names_file_and_row_group_of_a_damaged_page(
    table: IngestTable, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.parquet", [(f"k{i:03d}" * 9, i) for i in range(300)])
    content = bytearray(path.read_bytes())
    offset = pq.ParquetFile(path).metadata.row_group(7).column(1).data_page_offset
    content[offset : offset + 30] = b"\xff" * 30
    path.write_bytes(content)
    with pytest.raises(InvalidRequestError, match=r"a\.parquet, row group 7: cannot be read"):
        ingest_files(table, "j1", [path], "r")
    assert read_rows(table) == []


def test_empty_upload_ingests_no_rows(table: IngestTable, tmp_path: Path) -> None:
    pq.write_table(pa.table({}), tmp_path / "none.parquet")
    result = ingest_files(table, "j1", [tmp_path / "none.parquet"], "r")
    assert (result.rows, result.files, result.number) == (0, 0, 2)
    assert ingest_files(table, "j1", [tmp_path / "none.parquet"], "r").done_before


def test_file_deleted_during_the_sort_raises(table: IngestTable, tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{n}.parquet", [(n, 1)]) for n in "ab"]

    def take_away(_: int) -> None:
        paths[0].unlink(missing_ok=True)

    with pytest.raises((UnavailableError, InvalidRequestError)):
        ingest_files(table, "j1", paths, "r", progress=IngestProgress(take_away))
    assert read_rows(table) == []


def test_batches_may_come_from_a_generator(table: IngestTable) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for i in range(50):
            yield pa.record_batch({"k": [f"{i:02d}"] * 100, "n": pa.array([i] * 100, pa.int64())})

    assert ingest_batches(table, "j1", batches(), "r").rows == 5000
    assert len(read_rows(table)) == 5000


def test_messages_follow_the_specification() -> None:
    job = INGEST_JOBS.parse('{"tableName":"t","files":["b/k.parquet"],"extra":1}', "m1")
    assert job == IngestJob("m1", ("b/k.parquet",), table_name="t")
    assert INGEST_JOBS.parse(INGEST_JOBS.format(job), "m2") == job
    by_id = INGEST_JOBS.parse('{"id":"j","tableId":"0a","files":["x"]}', "m")
    assert by_id == IngestJob("j", ("x",), table_id="0a")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "expected an object"),
        (json.dumps({"tableName": "t"}), '"files"'),
        (json.dumps({"tableName": "t", "files": "x"}), '"files"'),
        (json.dumps({"files": ["x"]}), '"tableName" or "tableId"'),
        (json.dumps({"id": {}, "tableName": "t", "files": ["x"]}), r'"id" is {} \(expected text\)'),
    ],
)
def test_invalid_message_is_refused_with_its_reason(body: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        INGEST_JOBS.parse(body, "m1")


def test_rejects_are_durable_before_the_commit(
    table: IngestTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text("k,n\na,1\nb,x\n")
    path = tmp_path / "rejects.jsonl"
    seen: list[str] = []
    commit = table.state.commit

    def look_and_commit(*transactions: Any) -> Any:
        seen.append(path.read_text())
        return commit(*transactions)

    monkeypatch.setattr(table.state, "commit", look_and_commit)
    with path.open("w") as sink:
        ingest_files(table, "j1", [tmp_path / "a.csv"], "r", Rejects(sink))
    assert len(seen) == 1
    assert json.loads(seen[0])["row"] == 2


def test_overtaken_run_adds_nothing(table: IngestTable) -> None:
    batch = pa.record_batch({"k": ["a"], "n": [1]})

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield batch
        assert ingest_batches(table, "j1", [batch], "r").rows == 1

    result = ingest_batches(table, "j1", overtaken(), "r")
    assert (result.rows, result.files, result.done_before) == (0, 0, True)
    assert read_rows(table) == [("a", 1)]


def with_extra_columns(path: Path) -> Path:
    columns = {"x": [1], "n": [7], "tags": [["t"]], "k": ["a"]}
    pq.write_table(pa.table(columns), path)
    return path


def test_extra_columns_are_ignored_with_a_warning(
    table: IngestTable, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = with_extra_columns(tmp_path / "a.parquet")
    assert ingest_files(table, "j1", [path], "r").rows == 1
    assert read_rows(table) == [("a", 7)]
    assert f"file {path}: ignored columns that are not in the schema: 'x', 'tags'" in caplog.text


def test_extra_columns_are_refused_by_property(table: IngestTable, tmp_path: Path) -> None:
    path = with_extra_columns(tmp_path / "a.parquet")
    with pytest.raises(InvalidRequestError, match="not in the schema: 'x', 'tags'"):
        ingest_files(replace(table, refuses_extra_columns=True), "j1", [path], "r")
    assert read_rows(table) == []


def test_csv_file_with_an_extra_column_is_refused(table: IngestTable, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,n,x\na,1,2\n")
    with pytest.raises(InvalidRequestError, match="not in the schema: 'x'"):
        ingest_files(table, "j1", [tmp_path / "a.csv"], "r")


def test_job_without_files_is_committed(table: IngestTable) -> None:
    result = ingest_files(table, "j1", [], "[]")
    assert (result.rows, result.files, result.number) == (0, 0, 2)
    assert ingest_files(table, "j1", [], "[]").done_before
    assert read_rows(table) == []


def test_line_longer_than_the_settings_is_refused(table: IngestTable, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"k": "a", "n": 1}\n')
    short = replace(table, engine=replace(table.engine, line_bytes_max=17))
    with pytest.raises(InvalidRequestError, match=r"a\.jsonl, line 1: longer than 17 bytes"):
        ingest_files(short, "job", [path], "request")
    assert ingest_files(table, "job", [path], "request").rows == 1


def test_damage_that_only_the_engine_detects_is_refused_by_name(
    table: IngestTable, tmp_path: Path
) -> None:
    good, bad = write(tmp_path / "good.parquet", [("a", 1)]), tmp_path / "bad.parquet"
    pq.write_table(pa.table({"k": ["abcabc"], "n": [1]}), bad, compression="none")
    bad.write_bytes(bad.read_bytes().replace(b"abcabc", b"abc\xffbc"))
    with pytest.raises(InvalidRequestError, match=r"file \S*bad\.parquet.*(UTF|utf)"):
        ingest_files(table, "job", [good, bad], "request")


def test_implausible_clock_fails_an_ingest_before_reading(
    table: IngestTable, tmp_path: Path
) -> None:
    ahead = replace(table, clock=lambda: system_clock() + 400 * 24 * 3600 * 1000)
    with pytest.raises(UnavailableError, match="accept-time"):
        ingest_files(ahead, "job", [tmp_path / "not read"], "request")


class UnansweredStore:
    """A state store whose first commits are applied, or not, without an answer."""

    def __init__(self, inner: StateStore, unanswered: int, applies: bool) -> None:
        self._inner = inner
        self._applies = applies
        self.unanswered = unanswered

    def commit(self, *transactions: Transaction) -> list[Outcome]:
        if self.unanswered:
            self.unanswered -= 1
            if self._applies:
                self._inner.commit(*transactions)
            raise UnavailableError("no answer")
        return self._inner.commit(*transactions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("applies", [True, False])
def test_commit_with_unknown_outcome_is_retried(
    table: IngestTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, applies: bool
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("sleeper.retries.sleep", waits.append)
    store = UnansweredStore(table.state, 3, applies)
    path = write(tmp_path / "a.parquet", [("a", 1), ("z", 2)])
    ingest_files(replace(table, state=store), "job", [path], "request")  # type: ignore[arg-type]
    assert read_rows(table) == [("a", 1), ("z", 2)]
    assert len(waits) == 3


def test_commit_with_unknown_outcome_is_retried_for_a_minute(
    table: IngestTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("sleeper.retries.sleep", waits.append)
    store = UnansweredStore(table.state, 1_000_000, False)
    path = write(tmp_path / "a.parquet", [("a", 1)])
    with pytest.raises(UnavailableError, match="no answer"):
        ingest_files(replace(table, state=store), "job", [path], "request")  # type: ignore[arg-type]
    assert 30 < sum(waits) <= 70
    store.unanswered = 0
    ingest_files(table, "job", [path], "request")
    assert read_rows(table) == [("a", 1)]
