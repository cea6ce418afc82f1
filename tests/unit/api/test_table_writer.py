"""A writer of small batches in Python."""

import threading

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import ConflictError, InvalidRequestError, NotFoundError

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [{"name": "v", "type": "StringType"}],
}


@pytest.fixture
def table(instance: sleeper.Instance) -> sleeper.Table:
    return instance.create_table("t", SCHEMA)


def row(key: int, value: str = "a") -> pa.RecordBatch:
    return pa.record_batch({"k": [key], "v": [value]})


def keys(table: sleeper.Table) -> list[int]:
    found: list[int] = table.query().to_arrow()["k"].to_pylist()
    return found


def test_rows_of_several_threads_are_written_once(table: sleeper.Table) -> None:
    def write(first: int) -> None:
        for key in range(first, first + 5):
            assert writer.write(row(key), id=f"row-{key}").rows == 1

    with table.writer() as writer:
        threads = [threading.Thread(target=write, args=(first,)) for first in range(0, 40, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert writer.write(row(7), id="row-7").already_done
        futures = [writer.submit(row(key)) for key in range(100, 110)]
    assert all(future.done() for future in futures)
    assert keys(table) == [*range(40), *range(100, 110)]


def test_rows_may_be_mappings(table: sleeper.Table) -> None:
    with table.writer() as writer:
        assert writer.write([{"k": 1, "v": "a"}, {"v": "b", "k": 2}], id="once").rows == 2
        with pytest.raises(InvalidRequestError, match="'k'"):
            writer.write([{"k": "x", "v": "a"}])
    assert keys(table) == [1, 2]


def test_the_content_of_an_id_does_not_depend_on_batches(table: sleeper.Table) -> None:
    rows = pa.table({"k": [2, 1, 3], "v": ["b", "a", "c"]})
    with table.writer() as writer:
        first = writer.write(rows, id="once")
        again = writer.write([rows.slice(0, 1), rows.slice(1)], id="once")
        assert (again.already_done, again.number, again.rows) == (True, first.number, 3)
        with pytest.raises(ConflictError, match="'once' was used by transaction"):
            writer.write(rows.slice(1), id="once")
    assert keys(table) == [1, 2, 3]


def test_the_content_of_an_id_does_not_depend_on_other_rows_in_memory(
    instance: sleeper.Instance,
) -> None:
    fields = [
        {"name": "open", "type": "BooleanType"},
        {"name": "text", "type": "StringType", "nullable": True},
    ]
    schema = {"rowKeyFields": [{"name": "k", "type": "LongType"}], "valueFields": fields}
    table = instance.create_table("flags", schema)
    rows = pa.table(
        {"k": [1, 2, 3, 4], "open": [True, False, True, True], "text": ["a", None, "c", None]}
    )
    with table.writer() as writer:
        for kind in (pa.string(), pa.string_view()):
            cast = rows.set_column(2, "text", rows["text"].cast(kind))
            for place in range(3):
                part = cast.slice(place, 2)
                alone = pa.Table.from_pylist(part.to_pylist(), cast.schema)
                writer.write(part, id=f"{place}")
                assert writer.write(alone, id=f"{place}").already_done
    assert table.query().to_arrow()["k"].to_pylist() == [1, 2, 2, 3, 3, 4]


def test_rows_that_cannot_be_written_are_refused(table: sleeper.Table) -> None:
    with table.writer() as writer:
        with pytest.raises(InvalidRequestError, match="field 'k' is string"):
            writer.write(pa.table({"k": ["x"], "v": ["a"]}))
        with pytest.raises(InvalidRequestError, match="different schemas"):
            writer.write([row(1), pa.record_batch({"k": [1]})])
        with pytest.raises(InvalidRequestError, match="no rows"):
            writer.write([])
        with pytest.raises(InvalidRequestError, match=r"expected Table\.ingest"):
            writer.write("rows.csv")
    with pytest.raises(InvalidRequestError, match="writer of table 't' is closed"):
        writer.write(row(1))
    assert keys(table) == []


def test_a_writer_of_a_deleted_table_fails(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    with table.writer() as writer:
        instance.delete_table("t")
        with pytest.raises(NotFoundError):
            writer.write(row(1))
    with pytest.raises(NotFoundError):
        table.writer()
