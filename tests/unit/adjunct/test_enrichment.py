"""Rows that are enriched from another table when they are ingested."""

import io
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sleeper
from sleeper.adjunct.engines.rocksdb import RocksDbEngine
from sleeper.datafiles.sources.rejects import Rejects
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.ingest.row_writer import RowWriter
from sleeper.ingest.service import ingest_paths
from sleeper.ingest.small_rows import Content, ContentType
from sleeper.opening import open_instance
from sleeper.statestore.store import StateStore
from tests.unit.adjunct.enriched_tables import (
    ACCOUNTS,
    LOOKUP,
    VISITS,
    account_rows,
    declare,
    found,
    set_properties,
    visit_rows,
)


@pytest.fixture
def accounts(instance: sleeper.Instance) -> sleeper.Table:
    table = instance.create_table("accounts", ACCOUNTS, {"sleeper.table.rows": "latest"})
    table.ingest(account_rows({1: ("de", 10), 2: ("fr", 20), 3: (None, 30)}))
    return table


@pytest.fixture
def visits(instance: sleeper.Instance, accounts: sleeper.Table) -> sleeper.Table:
    return instance.create_table("visits", VISITS, declare(LOOKUP))


def test_rows_get_the_fields_that_their_source_lacks(visits: sleeper.Table) -> None:
    visits.ingest(visit_rows(2, 1, 7, None, 3))
    assert found(visits) == [
        (0, 2, "fr", 20),
        (1, 1, "de", 10),
        (2, 7, None, None),
        (3, None, None, None),
        (4, 3, None, 30),
    ]


def test_a_value_of_the_source_stays(visits: sleeper.Table) -> None:
    rows = visit_rows(1, 2).append_column("account_country", pa.array(["xx", None], pa.string()))
    visits.ingest(rows)
    assert found(visits) == [(0, 1, "xx", 10), (1, 2, "fr", 20)]


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_files_of_all_formats_are_enriched(
    visits: sleeper.Table, tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"rows.{ending}"
    match ending:
        case "parquet":
            # All columns are there, so the engine could scan the file unchanged.
            none = pa.nulls(2, pa.string()), pa.nulls(2, pa.int64())
            rows = visit_rows(2, 1).append_column("account_country", none[0])
            pq.write_table(rows.append_column("account_size", none[1]), path)
        case "csv":
            path.write_text("at,account\n0,2\n1,1\n")
        case "jsonl":
            path.write_text('{"at": 0, "account": 2}\n{"at": 1, "account": 1}\n')
    visits.ingest(path)
    assert found(visits) == [(0, 2, "fr", 20), (1, 1, "de", 10)]


def test_rows_of_a_writer_are_enriched(
    visits: sleeper.Table, accounts: sleeper.Table, tmp_path: Path
) -> None:
    with visits.writer() as writer:
        assert writer.write(visit_rows(2, 1)).rows == 2
        accounts.ingest(account_rows({1: ("it", 1)}))
        assert writer.write(visit_rows(1)).rows == 1
    ports = open_instance(str(tmp_path / "instance"))
    with ThreadPoolExecutor(1) as executor:
        lines = RowWriter(lambda: ports.table("visits"), executor)
        content = Content(ContentType.JSON_LINES, b'{"at": 5, "account": 2}')
        assert lines.submit(content).result().rows == 1
    ports.close()
    expected = [(0, 1, "it", 1), (0, 2, "fr", 20), (1, 1, "de", 10), (5, 2, "fr", 20)]
    assert sorted(found(visits)) == expected


def test_a_job_has_what_was_committed_before_it(
    visits: sleeper.Table, accounts: sleeper.Table
) -> None:
    for country in ("it", "es", "pt"):
        accounts.ingest(account_rows({1: (country, 1)}))
        visits.ingest(visit_rows(1), job_id=country)
    assert [row[2] for row in found(visits)] == ["it", "es", "pt"]


def test_a_deleted_account_is_gone(visits: sleeper.Table, accounts: sleeper.Table) -> None:
    visits.ingest(visit_rows(1))
    accounts.delete(keys=[(1,)])
    visits.ingest(visit_rows(2, 1))
    assert found(visits)[1:] == [(0, 2, "fr", 20), (1, 1, None, None)]


def test_a_job_sees_one_version(visits: sleeper.Table, accounts: sleeper.Table) -> None:
    def batches() -> Any:
        yield from visit_rows(1).to_batches()
        # Another job needs the newer rows meanwhile.
        accounts.ingest(account_rows({1: ("it", 1)}))
        visits.ingest(pa.table({"at": [10], "account": [1]}))
        yield from pa.table({"at": [1], "account": [1]}).to_batches()

    visits.ingest(pa.RecordBatchReader.from_batches(visit_rows(1).schema, batches()))
    assert found(visits) == [(0, 1, "de", 10), (1, 1, "de", 10), (10, 1, "it", 1)]


def test_a_version_of_a_snapshot_table_serves_until_the_next_job(
    instance: sleeper.Instance,
) -> None:
    accounts = instance.create_table("accounts", ACCOUNTS, {"sleeper.table.type": "snapshot"})
    visits = instance.create_table("visits", VISITS, declare(LOOKUP))
    with pytest.raises(UnavailableError, match="no complete dataset"):
        visits.ingest(visit_rows(1))
    accounts.ingest(account_rows({1: ("de", 1), 2: ("fr", 2)}))
    visits.ingest(visit_rows(1, 2))
    accounts.ingest(account_rows({1: ("it", 3)}))
    visits.ingest(pa.table({"at": [2, 3], "account": [1, 2]}))
    assert [row[1:] for row in found(visits)] == [
        (1, "de", 1),
        (2, "fr", 2),
        (1, "it", 3),
        (2, None, None),
    ]


def test_a_file_is_an_input(instance: sleeper.Instance, tmp_path: Path) -> None:
    path = tmp_path / "accounts.csv"
    path.write_text("id,country,size\n1,at,5\n")
    # A file that was just written may be incomplete.
    os.utime(path, (0, 0))
    lookup = {**LOOKUP, "input": f"files:{path}?key=id"}
    visits = instance.create_table("visits", VISITS, declare(lookup))
    visits.ingest(visit_rows(1, 2))
    assert found(visits) == [(0, 1, "at", 5), (1, 2, None, None)]
    path.write_text("id,country,size\n2,ch,77\n")
    os.utime(path, (1, 1))
    visits.ingest(pa.table({"at": [2], "account": [2]}))
    assert found(visits)[2] == (2, 2, "ch", 77)


def test_the_newest_stash_is_an_input(
    instance: sleeper.Instance, accounts: sleeper.Table, tmp_path: Path
) -> None:
    lookup = {**LOOKUP, "input": f"stash:{tmp_path}/stash#accounts"}
    visits = instance.create_table("visits", VISITS, declare(lookup))
    instance.stash(tmp_path / "stash", tables=["accounts"])
    accounts.ingest(account_rows({1: ("it", 1)}))
    visits.ingest(visit_rows(1))
    assert found(visits) == [(0, 1, "de", 10)]
    instance.stash(tmp_path / "stash", tables=["accounts"])
    visits.ingest(pa.table({"at": [1], "account": [1]}))
    assert found(visits)[1] == (1, 1, "it", 1)


def test_an_empty_table_enriches_nothing(instance: sleeper.Instance) -> None:
    instance.create_table("accounts", ACCOUNTS)
    visits = instance.create_table("visits", VISITS, declare(LOOKUP))
    visits.ingest(visit_rows(1))
    visits.ingest(visit_rows())
    assert found(visits) == [(0, 1, None, None)]


def test_a_row_without_a_match_is_rejected_if_it_must_have_one(
    instance: sleeper.Instance, visits: sleeper.Table, tmp_path: Path
) -> None:
    set_properties(instance, declare({**LOOKUP, "missing": "reject"}))
    with pytest.raises(
        InvalidRequestError,
        match=r"row 2: field 'account_country': store 'accounts' has no row for account 7",
    ):
        visits.ingest(visit_rows(1, 7))
    path = tmp_path / "rows.csv"
    path.write_text("at,account\n0,2\n1,7\n2,\n")
    rejects = io.StringIO()
    ingest_paths(instance._ports, "visits", [str(path)], rejects=Rejects(rejects))
    assert found(visits) == [(0, 2, "fr", 20)]
    assert [json.loads(line)["row"] for line in rejects.getvalue().splitlines()] == [2, 3]


def test_a_field_without_nulls_rejects_rows_without_a_value(
    instance: sleeper.Instance, accounts: sleeper.Table
) -> None:
    values = [{"name": "account", "type": "LongType"}, {"name": "country", "type": "StringType"}]
    table = instance.create_table(
        "strict",
        {"rowKeyFields": VISITS["rowKeyFields"], "valueFields": values},
        declare({**LOOKUP, "fields": ["country"]}),
    )
    with pytest.raises(InvalidRequestError, match="has no row for account 7"):
        table.ingest(visit_rows(7))
    with pytest.raises(InvalidRequestError, match=r"'country'.*null, but the field is not"):
        table.ingest(visit_rows(3))
    table.ingest(visit_rows(1))
    assert found(table) == [(0, 1, "de")]


def test_a_default_stands_where_there_is_no_value(
    instance: sleeper.Instance, visits: sleeper.Table
) -> None:
    visits.add_field("region", "StringType", default="none")
    set_properties(instance, declare(LOOKUP, {**LOOKUP, "fields": {"country": "region"}}))
    visits.ingest(visit_rows(1, 7))
    assert [row[4] for row in found(visits)] == ["de", "none"]


def test_upserts_are_enriched_and_deletes_need_no_match(
    instance: sleeper.Instance, accounts: sleeper.Table
) -> None:
    table = instance.create_table(
        "latest",
        VISITS,
        {"sleeper.table.rows": "latest"} | declare({**LOOKUP, "missing": "reject"}),
    )
    table.ingest(visit_rows(1, 2))
    rows = visit_rows(None, 1).append_column("op", pa.array(["d", "u"]))
    table.ingest(rows, op_column="op")
    assert found(table) == [(1, 1, "de", 10)]


def test_a_lookup_may_use_a_field_of_an_earlier_one(
    instance: sleeper.Instance, visits: sleeper.Table
) -> None:
    countries = instance.create_table(
        "countries",
        {
            "rowKeyFields": [{"name": "code", "type": "StringType"}],
            "valueFields": [{"name": "name", "type": "StringType"}],
        },
    )
    countries.ingest(pa.table({"code": ["de"], "name": ["Germany"]}))
    visits.add_field("country_name", "StringType")
    second = {
        "store": "countries",
        "input": "table:countries",
        "on": {"code": "account_country"},
        "fields": {"name": "country_name"},
    }
    set_properties(instance, declare(LOOKUP, second))
    visits.ingest(visit_rows(1, 2))
    assert [row[4] for row in found(visits)] == ["Germany", None]
    with pytest.raises(InvalidRequestError, match="filled only later"):
        set_properties(instance, declare(second, LOOKUP))


def test_a_transaction_is_enriched(visits: sleeper.Table) -> None:
    with visits.transaction() as transaction:
        transaction.ingest(visit_rows(1))
        transaction.ingest(pa.table({"at": [9], "account": [2]}))
    assert found(visits) == [(0, 1, "de", 10), (9, 2, "fr", 20)]


def test_a_repeated_job_looks_nothing_up(
    visits: sleeper.Table, accounts: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    visits.ingest(visit_rows(1), job_id="a")
    accounts.ingest(account_rows({1: ("it", 1)}))

    def fail(*_args: object) -> None:
        raise AssertionError("the store was opened")

    monkeypatch.setattr("sleeper.adjunct.enrichment.pinned_stores.PinnedStores.pin", fail)
    assert visits.ingest(visit_rows(1), job_id="a").done_before
    assert found(visits) == [(0, 1, "de", 10)]


def test_a_job_fails_for_now_if_the_input_does_not_respond(
    instance: sleeper.Instance, visits: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    visits.ingest(visit_rows(1))
    ports = instance._ports
    broken_state = ports.table("accounts").state
    reading = StateStore.reading

    def fail(state: StateStore, *args: Any) -> Any:
        if state is broken_state:
            raise UnavailableError("no answer")
        return reading(state, *args)

    with monkeypatch.context() as broken:
        broken.setattr(StateStore, "reading", fail)
        with pytest.raises(UnavailableError, match="no answer"):
            visits.ingest(visit_rows(2))
    visits.ingest(visit_rows(2))
    assert [row[1] for row in found(visits)] == [1, 2]


def test_a_full_disk_fails_the_job_for_now(
    visits: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object, **_more: object) -> None:
        raise UnavailableError("no space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(RocksDbEngine, "load", fail)
        broken.setattr(RocksDbEngine, "apply", fail)
        with pytest.raises(UnavailableError, match="no space"):
            visits.ingest(visit_rows(1))
    visits.ingest(visit_rows(1))
    assert found(visits) == [(0, 1, "de", 10)]


def test_jobs_of_several_threads_share_the_store(
    instance: sleeper.Instance, visits: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[BaseException] = []

    def ingest(number: int) -> None:
        try:
            visits.ingest(pa.table({"at": [number], "account": [number % 3]}))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ingest, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert [row[2] for row in found(visits)] == [None, "de", "fr"] * 2


def test_versions_that_no_job_reads_are_deleted(
    instance: sleeper.Instance, accounts: sleeper.Table
) -> None:
    accounts.add_field("more", "StringType")
    visits = instance.create_table("visits", VISITS, declare(LOOKUP))
    visits.ingest(visit_rows(1))
    accounts.add_field("and_more", "StringType")
    visits.ingest(visit_rows(1))
    (store,) = (Path(instance._ports.where) / "adjunct").iterdir()
    assert len(list(store.glob("v-*"))) == 1


def test_a_job_is_refused_if_its_input_no_longer_fits(
    visits: sleeper.Table, accounts: sleeper.Table
) -> None:
    visits.ingest(visit_rows(1))
    accounts.rename_field("country", "land")
    with pytest.raises(InvalidRequestError, match=r"no field 'country'.*land"):
        visits.ingest(visit_rows(1))
    accounts.rename_field("land", "country")
    visits.ingest(visit_rows(1))


def test_a_job_is_refused_if_its_input_is_deleted(
    instance: sleeper.Instance, visits: sleeper.Table
) -> None:
    visits.ingest(visit_rows(1))
    instance.delete_table("accounts")
    with pytest.raises(InvalidRequestError, match="accounts"):
        visits.ingest(visit_rows(1))


KEYS = st.integers(0, 12)


@settings(max_examples=8, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.dictionaries(KEYS, st.tuples(st.sampled_from(["de", "fr", None]), KEYS)),
            st.lists(st.one_of(st.none(), KEYS), max_size=8),
        ),
        max_size=4,
    )
)
def test_enriched_rows_equal_a_join(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[dict[int, tuple[str | None, int]], list[int | None]]],
) -> None:
    folder = tmp_path_factory.mktemp("instance") / "x"
    sleeper.create_instance(folder)
    with sleeper.open_instance(folder) as instance:
        accounts = instance.create_table("accounts", ACCOUNTS, {"sleeper.table.rows": "latest"})
        visits = instance.create_table("visits", VISITS, declare(LOOKUP))
        model: dict[int, tuple[str | None, int]] = {}
        expected: list[tuple[Any, ...]] = []
        for changes, visited in steps:
            model.update(changes)
            accounts.ingest(account_rows(changes))
            at = range(len(expected), len(expected) + len(visited))
            visits.ingest(pa.table({"at": at, "account": pa.array(visited, pa.int64())}))
            expected += [
                (
                    each,
                    account,
                    *(model.get(account, (None, None)) if account is not None else (None, None)),
                )
                for each, account in zip(at, visited, strict=True)
            ]
        assert found(visits) == expected
