"""All that writes rows into a table fills its fields, or refuses to write."""

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.adapters.run import run_adapter
from sleeper.adapters.service import create_adapter
from sleeper.adapters.source_text import NewAdapter
from sleeper.bulk_import.service import bulk_import_table
from sleeper.bulk_import.start import start_bulk_import
from sleeper.errors import InvalidRequestError
from sleeper.ingest.parts import begin_ingest, commit_ingest, write_ingest_part
from sleeper.ingest.service import run_ingest_message, submit_ingest
from sleeper.ingest_batcher.service import create_all_ingest_batches, submit_to_batcher
from sleeper.jobs.queue import QueueName
from sleeper.jobs.spark_platform import PlatformName
from sleeper.properties.table import BATCHER_QUEUE
from tests.ports import with_ports
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

ENRICHED = [(0, 2, "fr", 20), (1, 7, None, None)]


@pytest.fixture
def visits(instance: sleeper.Instance) -> sleeper.Table:
    accounts = instance.create_table("accounts", ACCOUNTS)
    accounts.ingest(account_rows({1: ("de", 10), 2: ("fr", 20)}))
    return instance.create_table("visits", VISITS, declare(LOOKUP))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    pq.write_table(visit_rows(2, 7), tmp_path / "visits.parquet")
    return tmp_path / "visits.parquet"


def test_a_queued_job(instance: sleeper.Instance, visits: sleeper.Table, file: Path) -> None:
    submit_ingest(instance._ports, "visits", [str(file)])
    (message,) = instance._ports.jobs.queue(QueueName.INGEST).receive()
    run_ingest_message(instance._ports, message)
    assert found(visits) == ENRICHED


def test_parts_of_a_job(instance: sleeper.Instance, visits: sleeper.Table) -> None:
    ports, rows = instance._ports, visit_rows(2, 7)
    begun = begin_ingest(ports.table("visits"), rows.schema, "(parts)")
    begun = pickle.loads(pickle.dumps(begun))
    files = write_ingest_part(ports, begun, rows.to_batches(), "(part)", 1)
    commit_ingest(ports, begun, "job", files)
    assert found(visits) == ENRICHED
    with pytest.raises(InvalidRequestError, match="missing: 'at'"):
        begin_ingest(ports.table("visits"), rows.select(["account"]).schema, "(parts)")


def test_parts_with_operations(instance: sleeper.Instance, visits: sleeper.Table) -> None:
    ports = instance._ports
    properties = {"sleeper.table.rows": "latest"} | declare({**LOOKUP, "missing": "reject"})
    latest = instance.create_table("latest", VISITS, properties)
    rows = visit_rows(2, None).append_column("op", pa.array(["u", "d"]))
    begun = begin_ingest(ports.table("latest"), rows.schema, "(parts)", "op")
    files = write_ingest_part(ports, begun, rows.to_batches(), "(part)", 1)
    commit_ingest(ports, begun, "job", files)
    assert found(latest) == [(0, 2, "fr", 20)]
    with pytest.raises(InvalidRequestError, match="missing: 'op'"):
        begin_ingest(ports.table("latest"), visit_rows(2).schema, "(parts)", "op")


def test_an_adapter_of_files(instance: sleeper.Instance, visits: sleeper.Table, file: Path) -> None:
    create_adapter(instance._ports, NewAdapter("files", [str(file)], "visits"))
    run_adapter(instance._ports, "files")
    assert found(visits) == ENRICHED


def test_an_adapter_of_a_table(instance: sleeper.Instance, visits: sleeper.Table) -> None:
    schema = {**VISITS, "valueFields": VISITS["valueFields"][:1]}
    instance.create_table("raw", schema).ingest(visit_rows(2, 7))
    create_adapter(instance._ports, NewAdapter("copy", ["table:raw"], "visits"))
    run_adapter(instance._ports, "copy")
    assert found(visits) == ENRICHED


def test_the_batcher_sends_no_bulk_imports(
    instance: sleeper.Instance, visits: sleeper.Table, file: Path
) -> None:
    small = {"sleeper.table.ingest.batcher.job.min.size": "0"}
    set_properties(instance, {BATCHER_QUEUE.name: "bulk_import_eks", **small})
    ports = instance._ports
    platforms = with_ports(ports, jobs={"queues": (*ports.jobs.queues, QueueName.INGEST_BATCHER)})
    assert submit_to_batcher(ports, "visits", [str(file)]) == 1
    assert create_all_ingest_batches(platforms) == (1, ())
    (message,) = ports.jobs.queue(QueueName.INGEST).receive()
    run_ingest_message(ports, message)
    assert found(visits) == ENRICHED


def test_a_bulk_import_is_refused(
    instance: sleeper.Instance, visits: sleeper.Table, file: Path
) -> None:
    ports = instance._ports
    with pytest.raises(InvalidRequestError, match="a bulk import does not fill fields"):
        bulk_import_table(ports.table("visits"))
    queue = ports.jobs.queue(QueueName.INGEST)
    queue.send(json.dumps({"id": "a", "tableName": "visits", "files": [str(file)]}))
    (message,) = queue.receive()
    with pytest.raises(InvalidRequestError, match="a bulk import does not fill fields"):
        start_bulk_import(ports, PlatformName.EKS, message)


def test_operations_may_not_be_missing_where_fields_were_added(instance: sleeper.Instance) -> None:
    table = instance.create_table("latest", VISITS, {"sleeper.table.rows": "latest"})
    table.add_field("more", "StringType")
    rows = visit_rows(1).append_column("account_country", pa.nulls(1, pa.string()))
    rows = rows.append_column("account_size", pa.nulls(1, pa.int64()))
    with pytest.raises(InvalidRequestError, match="missing: 'op'"):
        table.ingest(rows, op_column="op")
