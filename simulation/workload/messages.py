"""Operations that query by message: a query is sent, workers run it, and its rows are fetched."""

import json
from collections import Counter

import pyarrow.parquet as pq

from simulation.model.journal import Read
from simulation.model.values import batch_rows
from simulation.workload.client import Client, SentQuery
from simulation.workload.registry import has_table, operation
from sleeper.jobs.query_tracker import QueryState
from sleeper.partitions.json import region_to_json
from sleeper.partitions.region import whole_region
from sleeper.query_service.frames import results_folder
from sleeper.query_service.service import send_query

_SENT_MAX = 4


def _may_send(client: Client) -> bool:
    return has_table(client) and len(client.queries) < _SENT_MAX


@operation(2, _may_send)
def query_by_message(client: Client) -> None:
    """Sends a query of all rows of a version."""
    table = client.choose_table()
    with client.instance.table(table.name).state.reading() as state:
        schema, version = state.schema, client.random.randint(state.oldest_version, state.number)
    body = {
        "type": "Query",
        "queryId": client.new_id("query"),
        "tableId": table.id,
        "asOf": version,
        "regions": [region_to_json(schema, whole_region(schema))],
    }
    query_id = send_query(client.instance, json.dumps(body))
    client.queries.append(SentQuery(table, version, query_id))


def _has_sent(client: Client) -> bool:
    return bool(client.queries)


@operation(3, _has_sent)
def fetch_query(client: Client) -> None:
    """Fetches the rows of a query that was sent, if it is complete."""
    sent = client.random.choice(client.queries)
    status = client.instance.queries.tracker().query(sent.id)
    if not status.state.is_finished:
        return
    client.queries.remove(sent)
    if status.state is not QueryState.COMPLETED:
        return
    root = client.instance.queries.results_root(None)
    rows: Counter[tuple[object, ...]] = Counter()
    for stored in sorted(root.list_objects(f"{results_folder(sent.id)}/"), key=lambda o: o.path):
        with root.open(stored.path) as file:
            rows.update(batch_rows(pq.read_table(file)))
    client.journal.reads.append(
        Read(
            table_id=sent.table.id,
            what="query by message",
            first=sent.version,
            last=sent.version,
            rows=rows,
        )
    )
