"""Bad input on a real instance is refused with a reason, tracked, and never partly committed."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.admin.properties import set_table_properties
from sleeper.admin.tables import create_table
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.ingest.service import ingest_paths, ingest_rows, submit_ingest
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.queue import QueueName
from sleeper.jobs.status import JobState
from sleeper.query.request import make_range_region
from sleeper.schema.model import schema_from_json
from tests.clock import FakeClock
from tests.system.bad_days import (
    SCHEMA,
    assert_nothing_stays,
    count_rows,
    make_table,
    run_all,
    submitted,
    write,
)


def truncated(path: Path) -> Path:
    write(path, [(f"k{i}", i) for i in range(1000)])
    path.write_bytes(path.read_bytes()[:2000])
    return path


def torn_page(path: Path) -> Path:
    write(path, [(f"k{i:04d}" * 5, i) for i in range(1000)])
    content = bytearray(path.read_bytes())
    content[40:400] = b"\xff" * 360
    path.write_bytes(content)
    return path


def text(content: str | bytes) -> Callable[[Path], Path]:
    def made(path: Path) -> Path:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return made


def parquet(**columns: object) -> Callable[[Path], Path]:
    def made(path: Path) -> Path:
        pq.write_table(pa.table(columns), path)
        return path

    return made


BAD = {
    "truncated": ("a.parquet", truncated, r"a\.parquet: not a readable Parquet file"),
    "torn page": ("a.parquet", torn_page, r"a\.parquet, row group 0: cannot be read"),
    "text under the name of Parquet": ("a.parquet", text("k,n\na,1\n"), "not a readable Parquet"),
    "Parquet under the name of CSV": (
        "a.csv",
        lambda path: write(path, [("a", 1)]),
        r"a\.csv.*UTF-8",
    ),
    "Parquet under the name of JSON": ("a.jsonl", lambda path: write(path, [("a", 1)]), "a.jsonl"),
    "an unknown kind of file": ("a.xlsx", text("x"), r"a\.xlsx.*(parquet|format)"),
    "empty Parquet": ("a.parquet", text(""), "not a readable Parquet"),
    "null key": ("a.parquet", lambda p: write(p, [("a", 1), (None, 2)]), r"row 2.*'k'.*null"),
    "null value that is not nullable": (
        "a.parquet",
        lambda p: write(p, [("a", 1), ("b", None)]),
        r"row 2.*'n'.*null",
    ),
    "null key in JSON": ("a.jsonl", text('{"k":"a","n":1}\n{"k":null,"n":2}\n'), "2.*'k'"),
    "missing key in JSON": ("a.jsonl", text('{"k":"a","n":1}\n{"n":2}\n'), "2.*'k'"),
    "no JSON": ("a.jsonl", text('{"k":"a","n":1}\n{"k":\n'), "2"),
    "a value too large": (
        "a.parquet",
        lambda p: write(p, [("a", 2**31)]),
        r"row 1.*'n'.*2147483648",
    ),
    "a value too large in CSV": ("a.csv", text("k,n\na,1\nb,2147483648\n"), "'n'.*2147483648"),
    "text for a number": ("a.csv", text("k,n\na,1\nb,two\n"), "'n'.*two"),
    "a number for text": ("a.parquet", parquet(k=[1, 2], n=[1, 2]), "'k'.*int64"),
    "a float for an integer": ("a.jsonl", text('{"k":"a","n":1.5}\n'), "'n'.*1.5"),
    "a missing column": ("a.parquet", parquet(k=["a"]), "'n'"),
    "a missing column in CSV": ("a.csv", text("k\na\n"), "'n'"),
    "an extra column in CSV": ("a.csv", text("k,n,m\na,1,2\n"), "'m'"),
    "a short line in CSV": ("a.csv", text("k,n\na\n"), "a.csv"),
    "damaged text": ("a.csv", text(b"k,n\n\xc3\xa9\xff,1\n"), r"a\.csv.*UTF-8"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_rejected_and_other_files_are_ingested(
    instance: Instance, tmp_path: Path, case: str
) -> None:
    name, make, reason = BAD[case]
    make_table(instance)
    (tmp_path / "in").mkdir()
    bad, good = make(tmp_path / "in" / name), write(tmp_path / "good.parquet", [("g", 1)])
    submit_ingest(instance, "rows", [str(good), str(bad)], "bad")
    submit_ingest(instance, "rows", [str(good)], "good")
    assert run_all(instance) == 2
    table_id = instance.table("rows").ref.id
    job = instance.jobs.tracker.job(table_id, "bad")
    assert job.state is JobState.REJECTED
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(*job.reasons)
    assert instance.jobs.tracker.job(table_id, "good").state is JobState.COMMITTED
    assert count_rows(instance) == {("g", 1): 1}
    assert_nothing_stays(instance)


def test_a_missing_file_is_refused_at_submission_and_at_run_time(
    instance: Instance, tmp_path: Path
) -> None:
    make_table(instance)
    with pytest.raises(InvalidRequestError, match=r"none\.parquet does not exist"):
        submit_ingest(instance, "rows", [str(tmp_path / "none.parquet")])
    with pytest.raises(InvalidRequestError, match=r"none\.parquet"):
        ingest_paths(instance, "rows", [str(tmp_path / "none.parquet")])
    path = write(tmp_path / "a.parquet", [("a", 1)])
    submit_ingest(instance, "rows", [str(path)], "j")
    path.unlink()
    run_all(instance)
    job = instance.jobs.tracker.job(instance.table("rows").ref.id, "j")
    assert job.state is JobState.REJECTED
    assert "a.parquet" in job.reasons[0]
    assert_nothing_stays(instance)


def test_rows_of_other_columns_are_refused(instance: Instance) -> None:
    make_table(instance)
    with pytest.raises(InvalidRequestError, match="'n'"):
        ingest_rows(instance, "rows", pa.table({"k": ["a"]}).to_batches())
    assert not count_rows(instance)


def test_an_unknown_table_is_refused_and_tracked(instance: Instance, tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [("a", 1)])
    with pytest.raises(InvalidRequestError, match="'none'"):
        ingest_paths(instance, "none", [str(path)])
    with pytest.raises(NotFoundError, match="'none'"):
        submit_ingest(instance, "none", [str(path)])
    body = json.dumps({"id": "j", "tableName": "none", "files": [str(path)]})
    instance.jobs.queue(QueueName.INGEST).send(body)
    run_all(instance)
    jobs = {job.job_id: job for job in instance.jobs.tracker.recent(JobKind.INGEST)}
    assert jobs["j"].state is JobState.REJECTED
    assert "'none'" in jobs["j"].reasons[0]


@pytest.mark.parametrize("body", ["no JSON", "{}", '{"tableName": "rows"}', '{"files": ["a"]}'])
def test_an_invalid_message_is_tracked_as_rejected(instance: Instance, body: str) -> None:
    make_table(instance)
    message_id = instance.jobs.queue(QueueName.INGEST).send(body)
    run_all(instance)
    (job,) = instance.jobs.tracker.recent(JobKind.INGEST)
    assert (job.job_id, job.state) == (message_id, JobState.REJECTED)
    assert "ingest message" in job.reasons[0]
    assert_nothing_stays(instance)


@pytest.mark.parametrize("queue", [QueueName.COMPACTION, QueueName.SPLITTING])
@pytest.mark.parametrize("body", ["no JSON", "[]", '{"tableId": "0a0b0c0d"}'])
def test_unknown_operations_are_dropped(instance: Instance, queue: QueueName, body: str) -> None:
    make_table(instance)
    instance.jobs.queue(queue).send(body)
    assert run_all(instance) == 1
    assert_nothing_stays(instance)


def test_a_poison_message_ends_as_a_dead_letter_and_can_be_redriven(
    instance: Instance, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(instance)
    path = write(tmp_path / "a.parquet", [("a", 1)])

    def breaks(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as patch:
        patch.setattr("sleeper.ingest.service.run_ingest_message", breaks)
        submit_ingest(instance, "rows", [str(path)], "j")
        for _ in range(5):
            run_all(instance)
            clock.now_ms += 10_000
    (letter,) = instance.jobs.dead_letters(QueueName.INGEST).list()
    assert (json.loads(letter.body)["id"], letter.receives) == ("j", 3)
    assert instance.jobs.dead_letters(QueueName.INGEST).redrive() == 1
    run_all(instance)
    assert count_rows(instance) == {("a", 1): 1}
    assert_nothing_stays(instance)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ('{"rowKeyFields": []}', "row key"),
        ("{}", "rowKeyFields"),
        ("{", "JSON"),
        (
            '{"rowKeyFields": [{"name": "k", "type": "LongType"}],'
            ' "valueFields": [{"name": "k", "type": "LongType"}]}',
            "'k'",
        ),
        ('{"rowKeyFields": [{"name": "k", "type": "FloatType"}]}', "'k'"),
        ('{"rowKeyFields": [{"name": "k", "type": "Banana"}]}', "Banana"),
    ],
)
def test_an_invalid_schema_creates_no_table(instance: Instance, schema: str, reason: str) -> None:
    previous = set(Path(instance.where).rglob("*"))
    with pytest.raises(InvalidRequestError, match=reason):
        create_table(instance, "rows", schema)
    assert instance.tables.index.list() == ()
    assert set(Path(instance.where).rglob("*")) == previous


def test_unknown_and_ill_typed_properties_are_refused(instance: Instance) -> None:
    with pytest.raises(InvalidRequestError, match=r"sleeper\.table\.nonsense"):
        create_table(instance, "rows", SCHEMA, {"sleeper.table.nonsense": "1"})
    with pytest.raises(InvalidRequestError, match=r"splitting\.threshold.*many"):
        create_table(
            instance, "rows", SCHEMA, {"sleeper.table.partition.splitting.threshold": "many"}
        )
    assert instance.tables.index.list() == ()
    make_table(instance)
    previous = instance.table("rows").properties()
    with pytest.raises(InvalidRequestError, match=r"sleeper\.table\.nonsense"):
        set_table_properties(instance, "rows", {"sleeper.table.nonsense": "1"})
    assert instance.table("rows").properties() == previous


@pytest.mark.parametrize("points", [["b", "a"], ["a", "a"], [1], [""], [None]])
def test_invalid_split_points_create_no_table(instance: Instance, points: list[object]) -> None:
    with pytest.raises(InvalidRequestError):
        create_table(instance, "rows", SCHEMA, {}, points)
    assert instance.tables.index.list() == ()


def test_a_range_with_its_minimum_above_its_maximum_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"'k'.*'b'.*'a'"):
        make_range_region(schema_from_json(SCHEMA), "b", "a")


def test_a_rejected_job_may_be_repeated_under_its_id(instance: Instance, tmp_path: Path) -> None:
    make_table(instance)
    path = write(tmp_path / "a.parquet", [(None, 1)])
    assert submitted(instance, path, "j").state is JobState.REJECTED
    write(path, [("a", 1)])
    assert submitted(instance, path, "j").state is JobState.COMMITTED
    assert count_rows(instance) == {("a", 1): 1}
