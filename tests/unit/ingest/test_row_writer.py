"""Rows of many requests that are written together: groups, refusals, and repeated ids."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from sleeper.admin.tables import create_table
from sleeper.datafiles.sources.budget import RowLimits, TooLargeError
from sleeper.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    StateMovedOnError,
    UnavailableError,
)
from sleeper.ingest import row_writer, small_rows
from sleeper.ingest.large_rows import write_large
from sleeper.ingest.request_results import WriteResult
from sleeper.ingest.row_writer import RowWriter, WriterLimits
from sleeper.ingest.small_rows import Content, ContentType, encode_stream
from sleeper.instance import Instance, OpenTable
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.tables import mark_table_deleting

SCHEMA = """{"rowKeyFields":[{"name":"k","type":"LongType"}],
 "valueFields":[{"name":"v","type":"StringType"}]}"""


class HeldExecutor(Executor):
    """Runs submitted work when the test says so."""

    def __init__(self) -> None:
        self.held: list[Callable[[], Any]] = []

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        self.held.append(lambda: work(*arguments, **options))
        return Future()

    def run(self) -> None:
        while self.held:
            self.held.pop(0)()


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance", "test", {})
    opened = open_local_instance(tmp_path / "instance")
    create_table(opened, "t", SCHEMA)
    yield opened
    opened.close()


@pytest.fixture
def executor() -> HeldExecutor:
    return HeldExecutor()


@pytest.fixture
def writer(instance: Instance, executor: HeldExecutor) -> RowWriter:
    return RowWriter(lambda: instance.table("t"), executor)


def line(key: object, value: str = "a") -> Content:
    text = f'{{"k": {key}, "v": "{value}"}}'
    return Content(ContentType.JSON_LINES, text.encode())


def read(instance: Instance) -> list[tuple[int, str]]:
    with open_query(instance, "t", Query()) as result:
        return [(row["k"], row["v"]) for row in result.read_all().to_pylist()]


def data_files(instance: Instance, tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "instance").glob("*/data/*/*"))


def error(future: "Future[WriteResult]") -> Exception:
    raised = future.exception(0)
    assert isinstance(raised, Exception)
    return raised


def test_all_requests_that_wait_are_one_file_and_one_commit(
    instance: Instance, executor: HeldExecutor, writer: RowWriter, tmp_path: Path
) -> None:
    futures = [writer.submit(line(k, f"v{k}")) for k in (3, 1, 2)]
    futures.append(writer.submit(Content(ContentType.CSV, b"k,v\n5,x\n4,y\n")))
    assert not any(future.done() for future in futures)
    executor.run()
    assert [each.result(0).rows for each in futures] == [1, 1, 1, 2]
    assert {each.result(0).number for each in futures} == {2}
    assert read(instance) == [(1, "v1"), (2, "v2"), (3, "v3"), (4, "y"), (5, "x")]
    assert len(data_files(instance, tmp_path)) == 4  # a data file and its sidecars
    assert writer.is_idle


def test_a_row_that_does_not_fit_refuses_its_request_only(
    instance: Instance, executor: HeldExecutor, writer: RowWriter
) -> None:
    bad = [line('"x"'), line(1, 'a", "w": "b'), Content(ContentType.JSON_LINES, b'{"k": 1')]
    good = [writer.submit(line(k)) for k in range(5)]
    refused = [writer.submit(content) for content in bad]
    good += [writer.submit(line(k)) for k in range(5, 9)]
    executor.run()
    assert [row[0] for row in read(instance)] == list(range(9))
    assert {each.result(0).number for each in good} == {2}
    for future, text in zip(refused, ("field 'k'", "row 1", "not a JSON object"), strict=True):
        assert isinstance(error(future), InvalidRequestError)
        assert text in str(error(future))


def test_an_unexpected_error_of_one_request_fails_it_only(
    instance: Instance,
    executor: HeldExecutor,
    writer: RowWriter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(small_rows, "read_csv", fail)
    broken = writer.submit(Content(ContentType.CSV, b"k,v\n5,x\n"))
    good = writer.submit(line(1))
    executor.run()
    assert isinstance(error(broken), RuntimeError)
    assert good.result(0).rows == 1


def test_an_id_that_occurs_twice_in_a_group_adds_its_rows_once(
    instance: Instance, executor: HeldExecutor, writer: RowWriter
) -> None:
    first, same, other = (writer.submit(line(1, v), "once") for v in ("a", "a", "b"))
    neighbour = writer.submit(line(2), "another")
    executor.run()
    assert first.result(0) == WriteResult("once", 1, 3)
    assert same.result(0) == WriteResult("once", 1, 3, already_done=True)
    assert isinstance(error(other), ConflictError)
    assert neighbour.result(0) == WriteResult("another", 1, 3)
    assert read(instance) == [(1, "a"), (2, "a")]


def test_a_request_that_another_process_commits_meanwhile_is_left_out(
    instance: Instance,
    executor: HeldExecutor,
    writer: RowWriter,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    write_small = row_writer.write_small
    other_process = open_local_instance(tmp_path / "instance")
    other_executor = HeldExecutor()
    other = RowWriter(lambda: other_process.table("t"), other_executor)

    def race(*arguments: Any) -> Any:
        monkeypatch.setattr(row_writer, "write_small", write_small)
        files = write_small(*arguments)
        other.submit(line(1), "same")
        other.submit(line(2, "z"), "different")
        other_executor.run()
        return files

    monkeypatch.setattr(row_writer, "write_small", race)
    same = writer.submit(line(1), "same")
    different = writer.submit(line(2), "different")
    own = writer.submit(line(3), "own")
    executor.run()
    other_process.close()
    assert same.result(0) == WriteResult("same", 1, 3, already_done=True)
    assert isinstance(error(different), ConflictError)
    assert own.result(0) == WriteResult("own", 1, 5)
    assert read(instance) == [(1, "a"), (2, "z"), (3, "a")]
    # The file of the refused commit is deleted.
    assert len(data_files(instance, tmp_path)) == 8


def test_a_large_request_that_another_commits_meanwhile_adds_no_row(
    instance: Instance,
    executor: HeldExecutor,
    writer: RowWriter,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    from sleeper.ingest import large_rows

    ingest_files = large_rows.ingest_files

    def race(*arguments: Any, **options: Any) -> Any:
        writer.submit(line(1), "same")
        executor.run()
        return ingest_files(*arguments, **options)

    monkeypatch.setattr(large_rows, "ingest_files", race)
    file = tmp_path / "rows.ndjson"
    file.write_bytes(line(1).data)
    table, digest = instance.table("t"), line(1).digest()
    result = write_large(table, file, ContentType.JSON_LINES, digest, "same", RowLimits())
    assert result == WriteResult("same", 1, 3, already_done=True)
    assert read(instance) == [(1, "a")]


@pytest.mark.parametrize("request_id", [None, "some"])
def test_a_large_request_counts_its_rows_if_the_answer_of_the_commit_is_lost(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request_id: str | None
) -> None:
    monkeypatch.setattr("sleeper.retries.sleep", lambda _: None)
    lost: list[str] = []

    def lose_the_first(name: str) -> None:
        original = getattr(StateStore, name)

        def commit(self: StateStore, *transactions: Any) -> Any:
            outcomes = original(self, *transactions)
            if not lost and any(isinstance(each, AddFiles) for each in transactions):
                lost.append(name)
                raise UnavailableError("no answer")
            return outcomes

        monkeypatch.setattr(StateStore, name, commit)

    lose_the_first("commit")
    lose_the_first("commit_together")
    file = tmp_path / "rows.ndjson"
    file.write_bytes(line(1).data + b"\n" + line(2).data)
    table, digest = instance.table("t"), line(1).digest()
    result = write_large(table, file, ContentType.JSON_LINES, digest, request_id, RowLimits())
    assert (result.rows, len(lost)) == (2, 1)
    assert read(instance) == [(1, "a"), (2, "a")]


def test_too_many_requests_are_refused_and_not_taken(
    instance: Instance, executor: HeldExecutor
) -> None:
    size = len(line(1).data)
    limits = WriterLimits(waiting_bytes_max=2 * size, waiting_requests_max=5)
    writer = RowWriter(lambda: instance.table("t"), executor, limits)
    futures = [writer.submit(line(k)) for k in (1, 2)]
    with pytest.raises(UnavailableError, match=r"2 requests of .* wait to be written"):
        writer.submit(line(3))
    executor.run()
    assert [each.result(0).rows for each in futures] == [1, 1]
    assert len(read(instance)) == 2
    # One request alone may be larger than what may wait.
    large = writer.submit(line(4, "x" * 3 * size))
    executor.run()
    assert large.result(0).rows == 1


def test_a_group_has_a_limit_of_requests_and_bytes(
    instance: Instance, executor: HeldExecutor
) -> None:
    limits = WriterLimits(group_requests_max=2, group_bytes_max=len(line(1).data) * 3)
    writer = RowWriter(lambda: instance.table("t"), executor, limits)
    futures = [writer.submit(line(k)) for k in range(1, 4)]
    futures.append(writer.submit(line(5, "x" * 200)))
    executor.run()
    assert [each.result(0).number for each in futures] == [2, 2, 3, 4]


def test_a_table_that_is_written_all_the_time_takes_turns_with_others(
    instance: Instance, executor: HeldExecutor
) -> None:
    create_table(instance, "other", SCHEMA)
    written: list[str] = []

    def go_on(*_: object) -> None:
        written.append("busy")
        if len(written) < 4:
            busy.submit(line(len(written)))

    busy = RowWriter(lambda: instance.table("t"), executor, on_group=go_on)
    other = RowWriter(
        lambda: instance.table("other"), executor, on_group=lambda *_: written.append("other")
    )
    busy.submit(line(0))
    other.submit(line(0))
    executor.run()
    assert written == ["busy", "other", "busy", "busy"]


def test_requests_that_wait_are_written_when_the_executor_shuts_down(instance: Instance) -> None:
    executor = ThreadPoolExecutor(1)
    limits = WriterLimits(group_requests_max=1)
    begins = Event()

    def open_table() -> OpenTable:
        assert begins.wait(60)
        return instance.table("t")

    writer = RowWriter(open_table, executor, limits)
    futures = [writer.submit(line(k)) for k in range(3)]
    executor.shutdown(wait=False)
    begins.set()
    assert [each.result(60).rows for each in futures] == [1, 1, 1]


def test_the_last_row_of_a_key_is_kept_in_a_table_of_latest_rows(
    instance: Instance, executor: HeldExecutor
) -> None:
    create_table(instance, "latest", SCHEMA, {"sleeper.table.rows": "latest"})
    writer = RowWriter(lambda: instance.table("latest"), executor)
    for value in ("first", "second", "third"):
        writer.submit(line(1, value))
    executor.run()
    writer.submit(line(1, "fourth"))
    writer.submit(Content(ContentType.CSV, b"k,v\n1,fifth\n"))
    executor.run()
    with open_query(instance, "latest", Query()) as result:
        assert result.read_all().to_pylist() == [{"k": 1, "v": "fifth"}]


def test_errors_of_the_table_fail_all_requests(
    instance: Instance, executor: HeldExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = RowWriter(lambda: instance.table("nope"), executor).submit(line(1))
    executor.run()
    assert isinstance(error(missing), NotFoundError)
    write_small = row_writer.write_small

    def delete_table(*arguments: Any) -> Any:
        files = write_small(*arguments)
        mark_table_deleting(instance.tables.index, "t")
        return files

    monkeypatch.setattr(row_writer, "write_small", delete_table)
    deleted = RowWriter(lambda: instance.table("t"), executor).submit(line(1))
    executor.run()
    assert isinstance(error(deleted), StateMovedOnError)


@pytest.mark.parametrize("request_id", ["", "x" * 201, "a\nb", "\u00e9"])
def test_invalid_ids_are_refused(writer: RowWriter, request_id: str) -> None:
    with pytest.raises(InvalidRequestError, match="invalid id of a request"):
        writer.submit(line(1), request_id)


def arrow(*keys: int) -> Content:
    rows = pa.record_batch({"k": pa.array(keys, pa.int64()), "v": ["x"] * len(keys)})
    return encode_stream([rows])


def test_requests_that_take_too_much_memory_together_are_committed_one_after_another(
    instance: Instance,
    executor: HeldExecutor,
    writer: RowWriter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(small_rows, "_TOGETHER_BYTES_MAX", 100)
    contents = [arrow(1), arrow(2), arrow(*range(10, 30)), line(3), line(4), line(5)]
    futures = [writer.submit(content, f"id-{n // 2}") for n, content in enumerate(contents[:2])]
    futures += [writer.submit(content) for content in contents[2:]]
    futures.append(writer.submit(contents[0], "id-0"))
    executor.run()
    assert [each.exception(0) for each in futures if each is not futures[1]] == [None] * 6
    assert "was used by" in str(error(futures[1]))
    assert len({each.result(0).number for each in futures if each is not futures[1]}) > 2
    assert futures[-1].result(0).already_done
    assert [k for k, _ in read(instance)] == [1, 3, 4, 5, *range(10, 30)]


def test_a_large_request_before_a_text_is_written(
    instance: Instance,
    executor: HeldExecutor,
    writer: RowWriter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(small_rows, "_TOGETHER_BYTES_MAX", 100)
    futures = [writer.submit(each) for each in (arrow(*range(10, 30)), line(3))]
    executor.run()
    assert [each.result(0).rows for each in futures] == [20, 1]


def test_a_request_beyond_its_limits_is_refused_alone(
    instance: Instance, executor: HeldExecutor
) -> None:
    limits = WriterLimits(rows=RowLimits(memory_bytes_max=1_000))
    writer = RowWriter(lambda: instance.table("t"), executor, limits)
    many = Content(ContentType.JSON_LINES, line(1).data + b"\n" * 100)
    first, text, rows, last = map(writer.submit, (line(2), many, arrow(*range(100)), line(3)))
    executor.run()
    assert first.result(0).rows == last.result(0).rows == 1
    assert isinstance(error(text), TooLargeError)
    assert isinstance(error(rows), TooLargeError)
    assert [k for k, _ in read(instance)] == [2, 3]
