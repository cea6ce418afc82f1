"""The API in a notebook: HTML, completion, first rows, rows as mappings, and upkeep."""

import json
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sleeper
from sleeper.errors import InvalidRequestError, NotFoundError

NAME = "<b>taxi<b> & co"
SCHEMA = {
    "rowKeyFields": [{"name": "<k>", "type": "StringType"}],
    "sortKeyFields": [{"name": "day", "type": "DateType"}],
    "valueFields": [
        {"name": "v", "type": "DoubleType", "nullable": True},
        {"name": "n", "type": "LongType", "nullable": True},
    ],
}
DAY = date(2024, 2, 29)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[sleeper.Instance]:
    with sleeper.create_instance(tmp_path / "<i>") as opened:
        yield opened


@pytest.fixture
def table(instance: sleeper.Instance) -> sleeper.Table:
    return instance.create_table(NAME, SCHEMA)


def rows(*keys: str) -> list[dict[str, Any]]:
    return [{"<k>": key, "day": DAY, "n": number} for number, key in enumerate(keys)]


def html(shown: Any) -> str:
    return str(shown._repr_html_())


def test_html_of_instance_and_table_is_escaped_and_shows_sizes(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    table.ingest(rows("<script>", "b"))
    for text in (html(instance), html(table)):
        assert "&lt;b&gt;taxi&lt;b&gt; &amp; co" in text
        assert "<b>taxi" not in text
        assert "script" not in text
    assert "&lt;i&gt;</b>: 1 table" in html(instance)
    assert "2 rows, " in html(table)
    assert "in 1 file, 1 leaf, " in html(table)
    assert "<td>&lt;k&gt;</td><td>row key</td><td>StringType</td><td>no</td>" in html(table)
    assert (repr(table), "<i>" in repr(instance)) == (f"Table({NAME!r})", True)


def test_html_of_a_table_that_was_deleted_says_so(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    instance.delete_table(NAME)
    assert "no table" in html(table)
    assert "0 tables" in html(instance)


def test_html_of_a_result_reads_no_row(table: sleeper.Table) -> None:
    table.ingest(rows("a"))
    result = table.query()
    assert "<td>&lt;k&gt;</td><td>string</td>" in html(result)
    assert "not read yet" in html(result)
    assert result.to_arrow().num_rows == 1
    assert "were read" in html(result)
    closed = table.query()
    closed.close()
    assert "closed" in html(closed)


def test_long_schemas_and_texts_are_cut(instance: sleeper.Instance) -> None:
    values = [{"name": f"v{n}", "type": "IntType"} for n in range(300)]
    values[0]["name"] = "x" * 250
    wide = instance.create_table("wide", {**SCHEMA, "valueFields": values})
    assert "and 102 more" in html(wide)
    assert "x" * 200 + "…" in html(wide)
    assert "x" * 201 not in html(wide)


def test_tables_are_found_and_completed_by_name(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    assert instance[NAME].name == table.name
    assert instance._ipython_key_completions_() == [NAME]
    assert list(instance) == [NAME]
    assert NAME in instance
    assert "other" not in instance
    with pytest.raises(NotFoundError):
        instance["other"]


def test_head_and_len(table: sleeper.Table) -> None:
    assert (len(table), bool(table), table.head().num_rows) == (0, True, 0)
    table.ingest(rows(*"hgfedcba"))
    assert len(table) == 8
    assert table.head()["<k>"].to_pylist() == list("abcde")
    assert table.head(2)["<k>"].to_pylist() == ["a", "b"]
    table.delete(keys=[["a"]])
    assert len(table) == 7
    with pytest.raises(InvalidRequestError, match="limit -1"):
        table.head(-1)


def test_mappings_are_ingested(table: sleeper.Table) -> None:
    table.ingest([{"day": DAY, "<k>": "a"}, {"<k>": "b", "day": DAY, "v": 1, "n": None}])
    table.ingest(iter(rows("c")))
    table.ingest([{"<k>": "d", "day": DAY, "n": 4.0, "v": np.float32(1.5)}])
    assert table.ingest([]).rows == 0
    assert table.query().to_arrow().to_pylist() == [
        {"<k>": "a", "day": DAY, "v": None, "n": None},
        {"<k>": "b", "day": DAY, "v": 1.0, "n": None},
        {"<k>": "c", "day": DAY, "v": None, "n": 0},
        {"<k>": "d", "day": DAY, "v": 1.5, "n": 4},
    ]
    with table.transaction() as transaction:
        transaction.ingest(rows("e"))
    assert len(table) == 5


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([*rows("a"), {"<k>": "b", "day": DAY, "n": "x"}], r"row 2: field 'n': str 'x'"),
        ([*rows("a"), {"<k>": "b", "day": DAY, "m": 1}], r"row 2: the table has no field 'm'"),
        ([*rows("a"), 5], r"row 2 is int 5"),
        ([{"<k>": "a", "day": "2024-02-29"}], r"row 1: field 'day': str '2024"),
        ([{"<k>": "a", "day": DAY, "n": 1.5}], r"row 1.*'n'.*1.5"),
        ([{"<k>": "a", "day": datetime(2024, 2, 29, 12)}], "field 'day' is timestamp"),
        ([{"<k>": "a", "day": DAY, "n": 2**63}], r"row 1.*'n'"),
        ([{"<k>": "a", "day": DAY, "n": 2**80}], r"row 1.*'n'"),
        ([*rows("a"), {"<k>": 5, "day": DAY}], r"row 2: field '<k>': int 5"),
        ([{"day": DAY}], r"missing: '<k>'"),
        ([{"<k>": None, "day": DAY}], r"row 1.*'<k>'"),
        ({"<k>": ["a"]}, "unsupported rows: dict"),
    ],
)
def test_mappings_that_do_not_fit_are_refused(
    table: sleeper.Table, wrong: Any, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        table.ingest(wrong)
    assert len(table) == 0


def test_maps_and_lists_are_ingested_without_loss(instance: sleeper.Instance) -> None:
    values = [
        {
            "name": "m",
            "type": {"MapType": {"keyType": "StringType", "valueType": "LongType"}},
            "nullable": True,
        },
        {"name": "l", "type": {"ListType": {"elementType": "LongType"}}, "nullable": True},
    ]
    nested = instance.create_table("nested", {**SCHEMA, "valueFields": values})
    nested.ingest([{"<k>": "a", "day": DAY, "m": {"x": 1}, "l": [1, 2]}, {"<k>": "b", "day": DAY}])
    assert nested.head()["m"].to_pylist() == [[("x", 1)], None]
    assert nested.head()["l"].to_pylist() == [[1, 2], None]
    with pytest.raises(InvalidRequestError, match="'m'"):
        nested.ingest([{"<k>": "a", "day": DAY, "m": {"x": 1.5}}])
    with pytest.raises(InvalidRequestError, match="'l'"):
        nested.ingest([{"<k>": "a", "day": DAY, "l": [1.5]}])


def test_rows_of_later_batches_are_named(
    table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sleeper.api.records._ROWS_PER_BATCH", 2)
    table.ingest(rows(*"abcde"))
    assert len(table) == 5
    with pytest.raises(InvalidRequestError, match="row 4: field 'n'"):
        table.ingest([*rows("a", "b", "c"), {"<k>": "d", "day": DAY, "n": b"x"}, {"n": 1}])


def test_rejects_are_written_and_limited(table: sleeper.Table, tmp_path: Path) -> None:
    source, rejects = tmp_path / "rows.jsonl", tmp_path / "rejects.jsonl"
    lines = [{"<k>": "a", "day": "2024-02-29", "v": 1, "n": n} for n in (1, "x", 2)]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = table.ingest(source, rejects=rejects)
    assert (result.rows, result.rejected) == (2, 1)
    assert json.loads(rejects.read_text())["row"] == 2
    with pytest.raises(InvalidRequestError):
        table.ingest(source, rejects=str(rejects), rejects_max=0)
    with pytest.raises(InvalidRequestError, match="rejects_max without rejects"):
        table.ingest(source, rejects_max=1)
    with pytest.raises(InvalidRequestError, match="rejects with rows in memory"):
        table.ingest(rows("a"), rejects=rejects)
    assert len(table) == 2


def test_reports_are_mappings(instance: sleeper.Instance, table: sleeper.Table) -> None:
    instance.create_table("other", SCHEMA)
    table.ingest(rows("a"), job_id="first")
    assert {row["name"] for row in instance.report()} == {NAME, "other"}
    assert [(row["report"], row["rows"]) for row in table.report()] == [("tables", 1)]
    assert [row["rows"] for row in table.report("files")] == [1]
    assert [row["job"] for row in instance.report("ingest-jobs", table=NAME)] == ["first"]
    assert {"tables", "files", "queues"} <= {row["report"] for row in instance.report("all")}
    assert len(instance.report("tables", limit=1)) == 1
    with pytest.raises(InvalidRequestError, match=r"unknown report 'tablse' .*tables, files"):
        instance.report("tablse")
    with pytest.raises(NotFoundError):
        instance.report("files", table="none")


def test_properties_are_read_and_set(instance: sleeper.Instance, table: sleeper.Table) -> None:
    name = "sleeper.table.gc.delay.minutes"
    assert name not in table.properties(only_set=True)
    assert table.set_properties({name: "3"}) == []
    assert table.properties()[name] == table.properties(only_set=True)[name] == "3"
    with pytest.raises(InvalidRequestError):
        table.set_properties({name: "soon"})
    instance.set_properties({"sleeper.local.workers": "1"})
    assert instance.properties(only_set=True)["sleeper.local.workers"] == "1"


def test_maintenance_runs_from_python(table: sleeper.Table) -> None:
    table.set_properties(
        {
            "sleeper.table.partition.splitting.threshold": "2",
            "sleeper.table.gc.delay.minutes": "0",
        }
    )
    for key in "abcd":
        table.ingest(rows(key, key + "x"))
    assert table.compact(full=True).created == 1
    (split,) = table.split()
    assert split.leaves > 0
    assert table.gc(dry_run=True).files == table.gc().files == 0
    assert table.history(1)[0].number <= table.version


PARAMETERS: list[tuple[str, Any, list[str]]] = [
    ('"<k>" = $key', {"key": "b"}, ["b"]),
    ('"<k>" = $key', {"$key": "b' OR 1 = 1 --"}, []),
    ('"<k>" > $1 AND n < $2', ["a", 2], ["b"]),
    ("day = $day AND n IN ($a, $b)", {"day": DAY, "a": 0, "b": 2}, ["a", "c"]),
    ("n = $a OR $a IS NULL", {"a": None}, ["a", "b", "c"]),
    ("'$key' = $1 /* $key */", ["$key"], ["a", "b", "c"]),
]


@pytest.mark.parametrize(("where", "params", "expected"), PARAMETERS)
def test_parameters_are_bound(
    instance: sleeper.Instance, table: sleeper.Table, where: str, params: Any, expected: list[str]
) -> None:
    table.ingest(rows("a", "b", "c"))
    statement = f'SELECT "<k>" FROM "{NAME}" WHERE {where} ORDER BY 1'
    assert instance.sql(statement, params=params).to_arrow().column(0).to_pylist() == expected
    with table.reader() as reader:
        assert reader.sql(statement, params=params).to_arrow().num_rows == len(expected)


def test_parameters_narrow_the_files_that_are_read(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    table.ingest(rows("a"))
    table.ingest(rows("z"))
    statement = f'SELECT * FROM "{NAME}" WHERE "<k>" = $key'
    explained = instance.explain(statement, params={"key": "z"})
    assert (explained.rows, explained.reads[0].files) == (1, 1)


@pytest.mark.parametrize(
    ("statement", "params", "message"),
    [
        ("SELECT $a", None, r"parameter \$a has no value"),
        ("SELECT $a", {"b": 1}, r"parameter \$a has no value"),
        ("SELECT 1", {"b": 1}, r"no parameter \$b"),
        ("SELECT $1", [1, 2], r"no parameter \$2"),
        ("SELECT $a", {"a": [1]}, r"parameter \$a is list \[1\]"),
        ("SELECT $a", {"a": 2**64}, r"parameter \$a is int"),
        ("SELECT $a", {"a": object()}, r"parameter \$a is object"),
        ("SELECT $a", 5, "parameters are int 5"),
        ("SELECT $a", "a", "parameters are str 'a'"),
        ("SELECT $a", {1: 1}, "parameter name 1"),
        ("SELECT $ä", {"ä": 1}, "invalid SQL"),
        ("SELECT * FROM $a", {"a": NAME}, "invalid SQL"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(
    instance: sleeper.Instance, statement: str, params: Any, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        instance.sql(statement, params=params)
