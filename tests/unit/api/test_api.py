"""The Python API on a real instance: kinds of rows for ingest, and of results."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
import sleeper.adjunct
import sleeper.stash
from sleeper.errors import InvalidRequestError, NotFoundError, UnavailableError
from sleeper.ingest.service import ingest_rows

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "StringType"}, {"name": "i", "type": "LongType"}],
    "valueFields": [{"name": "v", "type": "DoubleType", "nullable": True}],
}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[sleeper.Instance]:
    with sleeper.create_instance(tmp_path / "my instance") as opened_instance:
        yield opened_instance


@pytest.fixture
def table(instance: sleeper.Instance) -> sleeper.Table:
    return instance.create_table("t", SCHEMA, split_points=["g", "p"])


def frame(*keys: str) -> pd.DataFrame:
    return pd.DataFrame({"v": 0.5, "k": list(keys), "i": range(len(keys))})


def keys(rows: sleeper.Rowset) -> list[str]:
    return [k for batch in rows for k in batch.column("k").to_pylist()]


def test_ingest_accepts_all_kinds_of_rows(table: sleeper.Table, tmp_path: Path) -> None:
    table.ingest(frame("a"))
    table.ingest(pl.from_pandas(frame("b")))
    table.ingest(pa.Table.from_pandas(frame("h")))
    table.ingest(pa.Table.from_pandas(frame("i")).to_batches()[0])
    table.ingest(b for b in pa.Table.from_pandas(frame("q")).to_batches())
    pq.write_table(pa.Table.from_pandas(frame("r"), preserve_index=False), tmp_path / "r.parquet")
    table.ingest(tmp_path / "r.parquet")
    table.ingest([str(tmp_path / "r.parquet")], job_id="again")
    table.ingest([str(tmp_path / "r.parquet")], job_id="again")
    assert keys(table.query()) == ["a", "b", "h", "i", "q", "r", "r"]


def test_rows_are_returned_as_arrow_pandas_and_polars(table: sleeper.Table) -> None:
    table.ingest(frame("z", "a", "m"))
    arrow = table.query().to_arrow()
    assert arrow.schema.equals(table.arrow_schema)
    assert arrow.column("k").to_pylist() == ["a", "m", "z"]
    assert table.query().to_pandas()["i"].tolist() == [1, 2, 0]
    assert table.query(columns=["v", "k"]).to_polars().columns == ["v", "k"]
    assert pl.DataFrame(table.query(limit=2))["k"].to_list() == ["a", "m"]


def test_keys_ranges_and_regions_select_rows(table: sleeper.Table) -> None:
    table.ingest(frame("a", "b", "c", "m", "z"))
    assert keys(table.query(keys=[["b", 1], ["z", 4], ["z", 5]])) == ["b", "z"]
    assert keys(table.query(ranges=[("b", "m"), ("z", None)])) == ["b", "c", "z"]
    assert keys(table.query(regions=[{"i": {"min": 3}}])) == ["m", "z"]
    with pytest.raises(InvalidRequestError, match="one per row key field"):
        table.query(keys=[["b"]])


def test_old_version_returns_its_rows(instance: sleeper.Instance, table: sleeper.Table) -> None:
    table.ingest(frame("a"))
    version = table.version
    table.ingest(frame("b"))
    assert keys(table.query(as_of=version)) == ["a"]
    statement = f'SELECT count(*) AS n FROM "{table.name}"'
    assert instance.sql(statement, as_of=version).to_arrow().to_pylist() == [{"n": 1}]
    by_table = instance.sql(statement, as_of={table.name: version})
    assert by_table.to_arrow().to_pylist() == [{"n": 1}]
    assert instance.explain(statement, as_of=version).reads[0].version == version
    assert keys(table.query()) == ["a", "b"]
    now = datetime.now(UTC)
    assert keys(table.query(as_of=now)) == ["a", "b"]
    assert instance.sql(statement, as_of=now).to_arrow().to_pylist() == [{"n": 2}]
    with pytest.raises(InvalidRequestError, match="the table did not exist"):
        table.query(as_of="1d")
    ingests = [entry for entry in table.history() if entry.operation == "ingest"]
    assert [(entry.files, entry.rows) for entry in ingests] == [(1, 1), (1, 1)]
    with pytest.raises(InvalidRequestError, match="invalid limit: -1"):
        table.history(-1)


def test_sql_reads_all_tables(instance: sleeper.Instance, table: sleeper.Table) -> None:
    table.ingest(frame("a", "b"))
    instance.create_table("Other T", SCHEMA).ingest(frame("b", "c"))
    joined = 'SELECT t.k FROM t JOIN "Other T" o ON t.k = o.k'
    assert instance.sql(joined).to_arrow().to_pydict() == {"k": ["b"]}


def test_background_work_runs_from_python(instance: sleeper.Instance) -> None:
    settings = {
        "sleeper.table.partition.splitting.threshold": "8",
        "sleeper.table.compaction.strategy.class": "BasicCompactionStrategy",
        "sleeper.table.compaction.files.batch.size": "2",
    }
    table = instance.create_table("t", SCHEMA, settings)
    for start in range(4):
        table.ingest(frame(*(f"{i}{start}" for i in range(4))))
    status = instance.run_until_idle(workers=1)
    assert status.idle
    assert status.splits_sent > 0
    assert status.compactions_created > 0
    assert len(keys(table.query())) == 16


def test_tables_are_created_and_deleted(instance: sleeper.Instance, table: sleeper.Table) -> None:
    assert instance.tables() == ["t"]
    instance.delete_table("t")
    assert instance.tables() == []
    with pytest.raises(NotFoundError):
        instance.table("t")


def test_unsupported_rows_are_refused(table: sleeper.Table) -> None:
    with pytest.raises(InvalidRequestError, match="unsupported rows: int"):
        table.ingest(7)
    with pytest.raises(InvalidRequestError, match="unsupported rows: dict"):
        table.ingest({"k": "a"})


def test_sql_reads_tables_with_any_name(instance: sleeper.Instance) -> None:
    names = [f"t{number}" for number in range(4)]
    for number, name in enumerate(names):
        instance.create_table(name, SCHEMA).ingest(frame(*"abcd"[: number + 1]))
    for number, name in enumerate(names):
        counts = instance.sql(f"SELECT count(*) AS n FROM {name}").to_arrow()
        assert counts.to_pydict() == {"n": [number + 1]}
    with pytest.raises(InvalidRequestError, match="no table"):
        instance.sql("SELECT * FROM t1 JOIN t4 ON t1.k = t4.k")


def test_each_batch_is_checked_against_the_table(table: sleeper.Table) -> None:
    good = pa.record_batch({"k": ["a"], "i": [1], "v": [0.5]})
    for names in ({"k": ["a"], "v": [0.5]}, {"k": ["a"], "i": [1], "v": [0.5], "w": [1]}):
        with pytest.raises(InvalidRequestError, match="columns do not fit the table"):
            table.ingest(iter([good, pa.record_batch(names)]))
    assert keys(table.query()) == []


def test_folder_of_an_instance_may_have_any_name(tmp_path: Path) -> None:
    with sleeper.create_instance(tmp_path / "a [b] *?# %41 é") as instance:
        table = instance.create_table("t", SCHEMA, split_points=["g"])
        table.ingest(frame("a", "b", "z"))
        assert keys(table.query()) == ["a", "b", "z"]
        assert keys(table.query(keys=[["b", 1]])) == ["b"]
        assert instance.sql("SELECT count(*) AS n FROM t").to_arrow().to_pydict() == {"n": [3]}


@pytest.mark.parametrize("job_id", [None, "monday"])
def test_unconfirmed_ingest_names_its_job_id(
    table: sleeper.Table, monkeypatch: pytest.MonkeyPatch, job_id: str | None
) -> None:
    """The commit was applied, and the tracker does not answer."""

    def lose_response(*arguments: Any, **options: Any) -> None:
        ingest_rows(*arguments, **options)
        raise UnavailableError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr("sleeper.api.table.ingest_rows", lose_response)
        with pytest.raises(UnavailableError, match="no answer; ") as error:
            table.ingest(frame("a", "b"), job_id)
    match = re.search("repeating it with job_id='(.+)' adds no row twice", str(error.value))
    assert match is not None
    assert match[1] == (job_id or match[1])
    assert table.ingest(frame("a", "b"), match[1]).done_before
    assert keys(table.query()) == ["a", "b"]


def test_interrupted_ingest_names_its_job_id(
    table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sleeper.api.table.ingest_rows", interrupt)
    with pytest.raises(KeyboardInterrupt) as error:
        table.ingest(frame("a"), "monday")
    assert "job_id='monday'" in error.value.__notes__[0]


READS: dict[str, Callable[[sleeper.Rowset], object]] = {
    "to_arrow": lambda rows: rows.to_arrow(),
    "to_pandas": lambda rows: rows.to_pandas(),
    "to_polars": lambda rows: rows.to_polars(),
    "to_reader": lambda rows: rows.to_reader().read_all(),
    "stream": lambda rows: pa.table(rows),
    "iteration": lambda rows: list(rows),
}


@pytest.mark.parametrize("second", READS)
@pytest.mark.parametrize("first", ["to_arrow", "to_reader", "iteration"])
def test_second_read_of_a_result_is_refused(table: sleeper.Table, first: str, second: str) -> None:
    table.ingest(frame("a", "z"))
    rows = table.query()
    READS[first](rows)
    with pytest.raises(InvalidRequestError, match="the rows were read before"):
        READS[second](rows)


@pytest.mark.parametrize("read", READS)
def test_read_of_a_closed_result_is_refused(table: sleeper.Table, read: str) -> None:
    table.ingest(frame("a"))
    with table.query() as rows:
        pass
    with pytest.raises(InvalidRequestError, match="those of a closed result"):
        READS[read](rows)


def test_iteration_can_be_continued_until_the_result_is_closed(table: sleeper.Table) -> None:
    for key in ("a", "h", "z"):
        table.ingest(frame(key))
    rows = table.query()
    first = next(iter(rows))
    with pytest.raises(InvalidRequestError, match="were read before"):
        rows.to_arrow()
    second = next(batches := iter(rows))
    assert [*first["k"].to_pylist(), *second["k"].to_pylist()] == ["a", "h"]
    rows.close()
    with pytest.raises(InvalidRequestError, match="the result of the query is closed"):
        next(batches)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"limit": "5"}, "limit is str '5' .expected an integer"),
        ({"limit": 10**30}, "limit is int 1000.*expected an integer of 64 bits"),
        ({"limit": True}, "limit is bool True"),
        ({"limit": -1}, "limit -1 .expected 0 to"),
        ({"columns": "kiv"}, "columns is str 'kiv' .expected a list or None"),
        ({"keys": 5}, "keys is int 5 .expected a list"),
        ({"ranges": ("a", "b")}, "range 'a' is not a pair"),
        ({"ranges": [("a", "b", "c")]}, "is not a pair .expected minimum and maximum"),
        ({"regions": {"k": {"min": "a"}}}, "regions is dict .* .expected a list"),
        ({"regions": ["k"]}, "region 'k' is not a mapping"),
        ({"filters": 5}, "filters is int 5 .expected text"),
        ({"iterator": 5}, "iterator is int 5"),
    ],
)
def test_arguments_of_wrong_types_are_refused(
    table: sleeper.Table, arguments: dict[str, Any], error: str
) -> None:
    with pytest.raises(InvalidRequestError, match=error):
        table.query(**arguments)


def test_wrong_types_are_refused_by_all_methods(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    wrong: Any = 5
    calls: list[Callable[[], object]] = [
        lambda: instance.table(wrong),
        lambda: instance.sql(wrong),
        lambda: instance.create_table("u", SCHEMA, {"sleeper.table.gc.delay.minutes": wrong}),
        lambda: instance.create_table("u", SCHEMA, split_points=wrong),
        lambda: table.ingest(frame("a"), job_id=wrong),
        lambda: table.add_field("w", wrong),
        lambda: table.history("5"),  # type: ignore[arg-type]
        lambda: table.order_fields("v"),
    ]
    for call in calls:
        with pytest.raises(InvalidRequestError, match="expected"):
            call()
    assert table.query(limit=np.int64(0)).to_arrow().num_rows == 0


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"sortKeyFeilds": []}, "unknown member 'sortKeyFeilds'.*did you mean sortKeyFields"),
        (
            {"valueFields": [{"name": "v", "type": "LongType", "nulable": True}]},
            "field 'v': unknown member 'nulable'.*did you mean nullable",
        ),
    ],
)
def test_unknown_members_of_a_schema_are_refused(
    instance: sleeper.Instance, change: dict[str, Any], error: str
) -> None:
    with pytest.raises(InvalidRequestError, match=error):
        instance.create_table("u", {**SCHEMA, **change})


def test_parameters_of_sql_come_second(instance: sleeper.Instance) -> None:
    assert instance.sql("SELECT $1 AS n", [3]).to_arrow().to_pylist() == [{"n": 3}]
    with pytest.raises(TypeError, match="positional argument"):
        instance.sql("SELECT $1 AS n", [3], 2)  # type: ignore[misc]


def test_modules_show_what_they_export() -> None:
    for module in (sleeper, sleeper.adjunct, sleeper.stash):
        assert dir(module) == sorted(module.__all__)


def test_a_rowset_shows_its_columns_and_whether_it_was_read(table: sleeper.Table) -> None:
    rows = table.query(columns=["k", "v"])
    assert repr(rows) == "<Rowset of k: string, v: double (not read yet, to_arrow() reads it)>"
    rows.to_arrow()
    assert repr(rows).endswith("(its rows were read)>")


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda instance: instance.create_table("x", lik=[1], key="k"), r"Instance.create_table"),
        (lambda instance: instance.sql("SELECT 1", parameters=[1]), "Instance.sql"),
        (lambda instance: instance.table("t").query(ky=[1]), "Table.query"),
        (lambda instance: instance.table("t").history(n=1), "Table.history"),
    ],
)
def test_an_unknown_argument_is_reported_by_the_called_function(
    instance: sleeper.Instance, table: sleeper.Table, call: Any, name: str
) -> None:
    with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument"):
        call(instance)
