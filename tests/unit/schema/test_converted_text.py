"""Fields of text that become JSON, and text again."""

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.admin.code import add_wheels
from sleeper.admin.properties import set_table_properties
from sleeper.errors import ConflictError, InvalidRequestError, StateMovedOnError
from sleeper.ingest.parts import begin_ingest, commit_ingest, write_ingest_part
from sleeper.processing.field_changes import ConvertField
from sleeper.query.distributed.read import plan_table_read, read_table_part
from sleeper.query.request import Query
from sleeper.query.run import run_query
from sleeper.query.text_of_json import check_text
from sleeper.reports.check import check_table
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.statestore.transactions.change_schema import ChangeSchema
from tests.tables.data_table import DataTable, make_engine
from tests.tables.opened import compact
from tests.unit.query.test_extracts import DistantRoot
from tests.wheels import isolated_user_code, make_wheel

LONG, STRING, JSON = PrimitiveType.LONG, PrimitiveType.STRING, PrimitiveType.JSON
SCHEMA = Schema(
    (Field("key", LONG),), (), (Field("text", STRING, nullable=True), Field("other", STRING))
)
TEXTS = ['{"a": 1.10}', "[1180591620717411303424]", None, "null", '"x"', " 7 "]


def table_of(*texts: str | None, first: int = 0) -> pa.Table:
    rows = [{"key": k, "text": text, "other": "o"} for k, text in enumerate(texts, first)]
    return pa.Table.from_pylist(rows, pa.schema([("key", "i8"), ("text", "str"), ("other", "str")]))


@pytest.fixture
def table(instance: sleeper.Instance) -> sleeper.Table:
    table = instance.create_table("rows", SCHEMA, split_points=[3])
    table.ingest(table_of(*TEXTS))
    return table


def texts(table: sleeper.Table, **query: Any) -> list[str | None]:
    column = table.query(**query).to_arrow()["text"]
    values: list[str | None] = column.cast(pa.string()).to_pylist()
    return values


def kind(table: sleeper.Table) -> str:
    return str(table.arrow_schema.field("text").type)


def test_text_becomes_json_and_text_again_without_a_change_of_its_bytes(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    change = table.convert_field("text", "JSONType", "mine")
    assert (change.number, kind(table)) == (3, "extension<arrow.json>")
    assert table.convert_field("text", "JSONType", "mine").already_done
    with pytest.raises(ConflictError, match="mine was used by transaction 3"):
        table.convert_field("other", "JSONType", "mine")
    assert texts(table) == texts(table, as_of=2) == TEXTS
    assert texts(table, keys=[[1]]) == TEXTS[1:2]
    found = instance.sql("SELECT text FROM rows WHERE text IS NOT NULL ORDER BY key LIMIT 1")
    assert found.to_arrow().to_pylist() == [{"text": TEXTS[0]}]
    ports = instance._ports
    read, parts = pickle.loads(pickle.dumps(plan_table_read(ports.table("rows"), Query(), "t", 1)))
    batches = [batch for part in parts for batch in read_table_part(ports, read, part)]
    assert pa.Table.from_batches(batches)["text"].combine_chunks().storage.to_pylist() == TEXTS
    with pytest.raises(InvalidRequestError, match="not JSON"):
        table.ingest(table_of("no", first=9))
    table.ingest(table_of("[0]", first=9))
    assert compact(instance) == 1
    assert texts(table) == [*TEXTS, "[0]"]
    assert not check_table(ports, "rows").findings
    table.convert_field("text", "StringType")
    assert kind(table) == "string"
    table.ingest(table_of("no JSON", first=10))
    assert texts(table) == [*TEXTS, "[0]", "no JSON"]
    assert not check_table(ports, "rows").findings


def test_rows_that_are_not_json_are_named_and_nothing_changes(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    table.ingest(table_of("1", "{", '{"a":1,"a":2}', "1, 2", first=7))
    with pytest.raises(InvalidRequestError) as caught:
        table.convert_field("text", "JSONType")
    for part in (
        "in 3 rows: key 8: field 'text': not JSON: ",
        "key 9: field 'text': JSON with the member 'a' twice",
        "key 10: field 'text': not JSON: more than one value",
    ):
        assert part in str(caught.value)
    assert (kind(table), table.version) == ("string", 3)
    table.delete(keys=[[8], [9], [10]])
    table.convert_field("text", "JSONType")
    assert texts(table) == [*TEXTS, "1"]
    compact(instance)
    assert texts(table) == [*TEXTS, "1"]
    table.convert_field("text", "StringType")
    table.ingest(table_of(*["no"] * 20, first=20))
    with pytest.raises(InvalidRequestError, match="in 10 rows, and perhaps more"):
        table.convert_field("text", "JSONType")


def test_rows_that_the_filter_of_the_table_hides_count(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    table.ingest(table_of("no", first=-5))
    filters = {"sleeper.table.filters": "ageOff(key,1000)"}
    set_table_properties(instance._ports, "rows", filters)
    assert "no" not in texts(table)
    with pytest.raises(InvalidRequestError, match="key -5: field 'text'"):
        table.convert_field("text", "JSONType")


def test_rows_that_are_added_meanwhile_are_read_too(
    table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    added: list[str] = ["[1]", "no"]

    def check_and_ingest(*arguments: Any) -> Any:
        result = check_text(*arguments)
        if added:
            table.ingest(table_of(added.pop(0), first=20 - len(added)))
        return result

    monkeypatch.setattr("sleeper.api.field_conversion.check_text", check_and_ingest)
    with pytest.raises(InvalidRequestError, match="key 20: field 'text': not JSON"):
        table.convert_field("text", "JSONType")
    table.delete(keys=[[20]])
    table.convert_field("text", "JSONType")
    table.convert_field("text", "StringType")
    added += ["1"] * 9
    with pytest.raises(ConflictError, match="in each of 5 attempts"):
        table.convert_field("text", "JSONType")
    assert kind(table) == "string"


ITERATOR = """
import pyarrow as pa

class Broken:
    def __init__(self, schema, row_key, sort_key, config):
        pass

    def __call__(self, batches):
        for batch in batches:
            yield batch.set_column(1, "text", pa.array(["no"] * len(batch)))
"""


def test_text_that_an_iterator_wrote_meanwhile_is_read_too(
    instance: sleeper.Instance,
    table: sleeper.Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table.ingest(table_of("1", first=2))
    code, names = {"broken": ITERATOR}, {"Broken": "broken:Broken"}
    add_wheels(instance._ports, [make_wheel(tmp_path, "broken", code, names)])
    iterator = {"sleeper.table.iterator.class.name": "Broken"}
    set_table_properties(instance._ports, "rows", iterator)

    def check_and_compact(*arguments: Any) -> Any:
        result = check_text(*arguments)
        compact(instance)
        return result

    monkeypatch.setattr("sleeper.api.field_conversion.check_text", check_and_compact)
    with isolated_user_code(), pytest.raises(InvalidRequestError, match="key 2: field 'text'"):
        table.convert_field("text", "JSONType")
    assert kind(table) == "string"


def test_jobs_and_versions_of_text_cannot_return(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    ports, late = instance._ports, table_of("no", first=9)
    begun = begin_ingest(ports.table("rows"), late.schema, "late")
    table.convert_field("text", "JSONType")
    files = write_ingest_part(ports, begun, late.to_batches(), "late", 1)
    with pytest.raises(StateMovedOnError, match="field 'text' has become JSON"):
        commit_ingest(ports, begun, "late", files)
    table.ingest(table_of("1", first=10))
    with pytest.raises(ConflictError, match="field 'text' has become JSON"):
        table.restore(2)
    table.restore(3)
    assert texts(table) == TEXTS
    table.convert_field("text", "StringType")
    table.restore(2)
    assert kind(table) == "string"


@pytest.mark.parametrize("nullable", [True, False])
def test_in_tables_of_latest_rows_hidden_rows_count_and_tombstones_do_not(
    instance: sleeper.Instance, nullable: bool
) -> None:
    schema = Schema((Field("key", LONG),), (), (Field("text", STRING, nullable=nullable),))
    table = instance.create_table("latest", schema, {"sleeper.table.rows": "latest"})
    table.ingest(table_of("no", "2").select(["key", "text"]))
    table.ingest(table_of("1").select(["key", "text"]))
    with pytest.raises(InvalidRequestError, match="key 0: field 'text'"):
        table.convert_field("text", "JSONType")
    gone = pa.table({"key": [1], "text": pa.array([None], pa.string()), "op": ["delete"]})
    table.ingest(gone, op_column="op")
    assert compact(instance, "latest") == 1
    table.ingest(gone, op_column="op")
    table.convert_field("text", "JSONType")
    assert texts(table) == ["1"]


def test_fields_that_cannot_be_converted(instance: sleeper.Instance, table: sleeper.Table) -> None:
    table.add_field("new", "StringType", "x")
    for name, to, reason in (
        ("key", "JSONType", "it is a key field"),
        ("new", "JSONType", "it has a default, 'x'"),
        ("text", "LongType", "from StringType to LongType"),
        ("text", "StringType", "from StringType to StringType"),
        ("none", "JSONType", "no field 'none'"),
    ):
        with pytest.raises(InvalidRequestError, match=reason):
            table.convert_field(name, to)
    aggregating = {"sleeper.table.aggregations": "min(text),max(other)"}
    summed = instance.create_table("summed", SCHEMA, aggregating)
    with pytest.raises(InvalidRequestError, match=r"aggregation min\(text\) needs it"):
        summed.convert_field("text", "JSONType")
    document = Schema((Field("key", LONG),), (), (Field("doc", JSON, document=True),))
    documents = instance.create_table("documents", document)
    with pytest.raises(InvalidRequestError, match="documents: 'doc' of StringType"):
        documents.convert_field("doc", "StringType")


def test_unchecked_text_is_refused(instance: sleeper.Instance, table: sleeper.Table) -> None:
    state = instance._ports.table("rows").state
    (outcome,) = state.commit(ChangeSchema((ConvertField("text", JSON),)))
    assert outcome.reason == "the text of field 'text' is not checked"


def test_distant_files_are_read_as_json(tmp_path: Path) -> None:
    table = DataTable(tmp_path, SCHEMA)
    table.root = DistantRoot(tmp_path / "bucket")  # type: ignore[assignment]
    table.add_rows([(key, text, "o") for key, text in enumerate(TEXTS)])
    change = ConvertField("text", JSON, checked=table.store.newest_number())
    table.store.commit_or_raise(ChangeSchema((change,)))
    with run_query(Query(), table.query_table, make_engine(tmp_path)) as found:
        (batch,) = found
        assert batch.column("text").storage.to_pylist() == TEXTS
