"""Every entrance refuses every bad array with an error of its own, and stores nothing of it."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.adapters.database_rows import fit_rows
from sleeper.admin.code import add_wheels
from sleeper.clock import system_clock
from sleeper.datafiles.sources.budget import RowLimits
from sleeper.errors import InvalidRequestError, UserCodeError
from sleeper.ingest.large_rows import write_large
from sleeper.ingest.parts import begin_parts, write_part
from sleeper.ingest.service import ingest_table
from sleeper.ingest.small_rows import Content, ContentDecoder, ContentType
from sleeper.local.instance import open_local_instance
from sleeper.schema.model import schema_to_json
from tests.foreign_arrays import BAD, GOOD, KIND, SCHEMA
from tests.tables.opened import compact_fully
from tests.wheels import isolated_user_code, make_wheel

_ITERATOR = """
import pyarrow as pa

class Replaces:
    rows = None

    def __init__(self, schema, row_key, sort_key, config):
        pass

    def __call__(self, batches):
        for batch in batches:
            yield batch if self.rows is None else self.rows
"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sleeper.Instance]:
    folder = tmp_path_factory.mktemp("foreign-arrays") / "instance"
    wheel = make_wheel(
        folder.parent,
        "my_code",
        {"my_code": _ITERATOR},
        {"Replaces": "my_code:Replaces"},
    )
    sleeper.create_instance(folder).close()
    with isolated_user_code(), sleeper.Instance(open_local_instance(folder, system_clock)) as it:
        add_wheels(it._ports, [wheel])
        it.create_table("rows", schema_to_json(SCHEMA))
        iterated = it.create_table("iterated", schema_to_json(SCHEMA))
        for _ in range(2):
            iterated.ingest(GOOD)
        iterated.set_properties({"sleeper.table.iterator.class.name": "Replaces"})
        iterated.query().to_arrow()  # imports the module
        yield it


Entrance = Callable[[sleeper.Instance, pa.RecordBatch, Path], object]


def _ingest(instance: sleeper.Instance, rows: pa.RecordBatch, _: Path) -> None:
    instance["rows"].ingest(rows)


def _ingest_table(instance: sleeper.Instance, rows: pa.RecordBatch, _: Path) -> None:
    instance["rows"].ingest(pa.Table.from_batches([rows]))


def _ingest_batches(instance: sleeper.Instance, rows: pa.RecordBatch, _: Path) -> None:
    instance["rows"].ingest(iter([rows]))


def _ingest_stream(instance: sleeper.Instance, rows: pa.RecordBatch, _: Path) -> None:
    instance["rows"].ingest(pa.RecordBatchReader.from_batches(rows.schema, [rows]))


def _transact(instance: sleeper.Instance, rows: pa.RecordBatch, _: Path) -> None:
    instance["rows"].transact(lambda transaction: transaction.ingest(rows))


def _write(instance: sleeper.Instance, rows: pa.RecordBatch, _: Path) -> None:
    with instance["rows"].writer() as writer:
        writer.write(rows)


def _body(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())


def _request(instance: sleeper.Instance, rows: pa.RecordBatch, _: Path) -> None:
    decoder = ContentDecoder(ingest_table(instance._ports.table("rows")))
    (decoded,) = decoder.decode([Content(ContentType.ARROW_STREAM, _body(rows))])
    if isinstance(decoded, Exception):
        raise decoded


def _large_request(instance: sleeper.Instance, rows: pa.RecordBatch, folder: Path) -> None:
    file = folder / "body.arrows"
    file.write_bytes(_body(rows))
    write_large(
        instance._ports.table("rows"), file, ContentType.ARROW_STREAM, b"", None, RowLimits()
    )


def _spark_task(instance: sleeper.Instance, rows: pa.RecordBatch, _: Path) -> None:
    table = ingest_table(instance._ports.table("rows"))
    target = begin_parts(table, rows.schema, "(DataFrame)")
    write_part(target, [rows], "(partition 0)", table.root, table.engine)


def _database(instance: sleeper.Instance, rows: pa.RecordBatch, _: Path) -> None:
    fit_rows(dict(zip(rows.schema.names, rows.columns, strict=True)), SCHEMA, "table t")


ENTRANCES: dict[str, Entrance] = {
    "ingest": _ingest,
    "ingest-table": _ingest_table,
    "ingest-batches": _ingest_batches,
    "ingest-stream": _ingest_stream,
    "transaction": _transact,
    "writer": _write,
    "request": _request,
    "large-request": _large_request,
    "spark-task": _spark_task,
    "database": _database,
}
# Parquet has no offsets, and no dates with a time of day.
IN_PARQUET = ["text-not-utf8", "key-not-utf8", "list-not-utf8", "map-with-equal-keys"]
TYPED = [name for name, bad in BAD.items() if bad.has_type_of_table]
DAMAGED = [name for name, bad in BAD.items() if bad.is_damaged]


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("name", BAD)
def test_rows_of_a_program_are_refused_with_the_field(
    opened: sleeper.Instance, tmp_path: Path, name: str, entrance: str
) -> None:
    bad = BAD[name]
    with pytest.raises(InvalidRequestError, match=f"field '{bad.field}'"):
        ENTRANCES[entrance](opened, bad.rows(), tmp_path)
    assert len(opened["rows"].query().to_arrow()) == 0


@pytest.mark.parametrize("name", IN_PARQUET)
def test_rows_of_parquet_files_are_refused(
    opened: sleeper.Instance, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_batches([BAD[name].rows().cast(KIND)]), file)
    with pytest.raises(InvalidRequestError, match=f"{file}"):
        opened["rows"].ingest(file)
    assert len(opened["rows"].query().to_arrow()) == 0


@pytest.mark.parametrize("name", [name for name, bad in BAD.items() if bad.field == "key"])
def test_keys_to_delete_are_refused(opened: sleeper.Instance, name: str) -> None:
    with pytest.raises(InvalidRequestError, match="field 'key'"):
        opened["rows"].delete(keys=BAD[name].rows())


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_rows_are_no_example_of_a_table(opened: sleeper.Instance, name: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"field '{BAD[name].field}': damaged"):
        opened.create_table("like", like=BAD[name].rows(), key="key")


def _query(instance: sleeper.Instance) -> Any:
    return instance["iterated"].query().to_arrow()


def _sql(instance: sleeper.Instance) -> Any:
    return instance.sql("SELECT * FROM iterated").to_arrow()


def _compact(instance: sleeper.Instance) -> Any:
    # A failed job keeps its files assigned.
    clone = instance.clone_table("iterated", f"clone-{len(instance.tables())}")
    return compact_fully(instance._ports, clone.name)


@pytest.mark.parametrize("use", [_query, _sql, _compact])
@pytest.mark.parametrize("name", TYPED)
def test_rows_of_an_iterator_are_refused_with_its_name(
    opened: sleeper.Instance, monkeypatch: pytest.MonkeyPatch, name: str, use: Any
) -> None:
    bad = BAD[name]
    rows = pa.RecordBatch.from_arrays(bad.rows().columns, schema=KIND)
    monkeypatch.setattr(sys.modules["my_code"].Replaces, "rows", rows)
    pattern = f"iterator 'Replaces' on table '[a-z0-9-]+' .*field '{bad.field}'"
    with pytest.raises(UserCodeError, match=pattern):
        use(opened)
    monkeypatch.undo()
    assert _query(opened).column("key").to_pylist() == ["a", "a", "b", "b", "c", "c"]


def test_good_arrays_pass(opened: sleeper.Instance, tmp_path: Path) -> None:
    table = opened.create_table("good", schema_to_json(SCHEMA))
    table.ingest(GOOD)
    assert table.query().to_arrow().to_batches()[0].equals(GOOD)
    fit_rows(dict(zip(KIND.names, GOOD.columns, strict=True)), SCHEMA, "table t")
    _request(opened, GOOD, tmp_path)
