"""The examples of docs/formats.md are read by the code that they document."""

import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sleeper.adapters.definition import ADAPTERS
from sleeper.adapters.message import parse_adapter_message
from sleeper.bulk_export.service import EXPORT_JOBS
from sleeper.bulk_import.start import parse_spark_request
from sleeper.compaction.job import parse_compaction_job
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.json_text import json_lines
from sleeper.deletion.message import parse_delete_message, parse_deleted_regions
from sleeper.export_queue.definition import parse_definition
from sleeper.export_queue.messages import parse_bucket_message
from sleeper.jobs.file_requests import SUBMISSIONS
from sleeper.jobs.ingest_job import INGEST_JOBS
from sleeper.partitions.json import region_from_json
from sleeper.properties.deployed import DEPLOYED_QUEUES, DeployedBucket, DeployedTable
from sleeper.properties.java_text import read_properties_text
from sleeper.query.messages.destination import RESULTS_DESTINATION
from sleeper.query.messages.leaf import make_leaf_query, parse_leaf_query_message
from sleeper.query.messages.query import make_query, parse_query_message
from sleeper.schema.model import Schema, schema_from_json
from sleeper.stash.message import parse_stash_message
from sleeper.statestore.commit_message import commit_message_from_json, decode_transactions
from sleeper.statestore.transactions.codec import KINDS, decode_line
from sleeper.systems import systems

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
EXAMPLES = [
    (heading, body)
    for section in re.split(r"^#+ ", PAGE, flags=re.MULTILINE)[1:]
    for heading in [section.partition("\n")[0]]
    for body in re.findall(r"^```json\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
]


def _schema() -> Schema:
    return schema_from_json(dict(EXAMPLES)["Schema JSON"])


def _query(body: str) -> None:
    make_query(parse_query_message(body, "default"), _schema())


def _leaf_query(body: str) -> None:
    make_leaf_query(parse_leaf_query_message(body), _schema())


def _delete(body: str) -> None:
    parse_deleted_regions(_schema(), parse_delete_message(body, "default").selection)


def _commit(body: str) -> None:
    decode_transactions(commit_message_from_json(body).lines or ())


_READERS: dict[str, Callable[[str], Any]] = {
    "Schema JSON": schema_from_json,
    "Regions and ranges": lambda body: region_from_json(_schema(), json.loads(body)),
    "Ingest messages": lambda body: INGEST_JOBS.parse(body, "default"),
    "Bulk import messages": parse_spark_request,
    "Ingest batcher messages": lambda body: SUBMISSIONS.parse(body, "default"),
    "Delete messages": _delete,
    "Bulk export messages": lambda body: EXPORT_JOBS.parse(body, "default"),
    "Query messages": _query,
    "Results destinations": lambda body: RESULTS_DESTINATION.decode(json.loads(body)),
    "Leaf query messages": _leaf_query,
    "Adapter messages": parse_adapter_message,
    "Adapter definitions": lambda body: ADAPTERS.parse(body, "definition"),
    "Stash messages": parse_stash_message,
    "Export queue messages": parse_bucket_message,
    "Compaction messages": parse_compaction_job,
    "Commit messages": _commit,
    "Export queues": parse_definition,
    "Transactions": lambda body: decode_line(json.dumps(json.loads(body))),
}


@pytest.mark.parametrize(("heading", "body"), EXAMPLES, ids=[heading for heading, _ in EXAMPLES])
def test_an_example_is_read(heading: str, body: str) -> None:
    assert isinstance(json.loads(body), dict)
    _READERS.get(heading, json.loads)(body)


def test_every_format_with_a_reader_has_an_example() -> None:
    assert set(_READERS) <= {heading for heading, _ in EXAMPLES}


def test_the_page_lists_every_queue() -> None:
    listing = re.findall(r"^\| `(\w+)` \| `([\w.-]+)` \| `([\w.]+)` \|", PAGE, re.MULTILINE)
    declaration = [
        (queue.key, queue.name, queue.url.name.removesuffix(".url"))
        for queue in DEPLOYED_QUEUES.values()
    ]
    assert sorted(listing) == sorted(declaration)


def test_the_page_lists_every_bucket_and_dynamodb_table() -> None:
    modules = [each.properties for each in systems() if each.properties is not None]
    stores = [store for each in modules for store in vars(import_module(each)).values()]
    buckets = [store for store in stores if isinstance(store, DeployedBucket)]
    tables = [store for store in stores if isinstance(store, DeployedTable)]
    assert len(buckets) == 7
    assert len(tables) == 10
    for bucket in buckets:
        assert f"| `sleeper-<clean id>-{bucket.name}-<account>` | `{bucket.place.name}`" in PAGE
    for table in tables:
        assert f"| `{table.name}` | `{table.place.name}` |" in PAGE


def test_the_page_lists_every_kind_of_transaction() -> None:
    section = PAGE.partition("### Transactions")[2].partition("\n### ")[0]
    first_cells = "".join(re.findall(r"^\|([^|]*)\|", section, re.MULTILINE))
    assert set(re.findall(r"`([a-z_]+)`", first_cells)) - {"kind"} == set(KINDS)


def test_properties_text_is_read() -> None:
    (text,) = re.findall(r"^```properties\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    result = read_properties_text(text)
    assert result["sleeper.query.queue.url"].startswith("https://sqs.")


def test_a_row_is_written_as_shown() -> None:
    example = dict(EXAMPLES)["Rows in JSON"]
    columns = {name: [value] for name, value in json.loads(example).items()}
    columns["props"] = [list(columns["props"][0].items())]
    batch = pa.RecordBatch.from_pydict(columns, schema=arrow_schema(_schema()))
    (line,) = json_lines(batch).to_pylist()
    assert json.loads(line) == json.loads(example)
