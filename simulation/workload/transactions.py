"""Operations that commit several changes together, and writers of small batches."""

from concurrent.futures import Future

from simulation.model.journal import Deletion, Ingest
from simulation.model.tables import random_key
from simulation.workload.client import Client, CreatedTable, answered
from simulation.workload.ingests import arrow_rows, make_ingest, op_column
from simulation.workload.registry import operation
from sleeper.ingest.request_results import WriteResult


def _with_rows(client: Client) -> list[CreatedTable]:
    """Returns the tables to which rows are added."""
    return [each for each in client.catalogue.active() if not each.is_snapshot]


def _has_table_with_rows(client: Client) -> bool:
    return bool(_with_rows(client))


@operation(4, _has_table_with_rows)
def transact(client: Client) -> None:
    """Reads, deletes and adds rows in one transaction, which other changes may refuse."""
    table = client.random.choice(_with_rows(client))
    ingest, schema = make_ingest(client, table)
    keys = [random_key(client.random, schema) for _ in range(client.random.randint(1, 2))]
    deletion = Deletion(id=ingest.id, table_id=table.id, keys=frozenset(keys))
    client.journal.deletions[deletion.id] = deletion
    with (
        answered(ingest),
        answered(deletion),
        client.open(table).transaction(ingest.id) as transaction,
    ):
        if client.random.random() < 0.5:
            transaction.query(keys=keys).to_arrow()
        transaction.delete(keys=keys)
        transaction.ingest(arrow_rows(table, ingest, schema), op_column(table))
        transaction.commit()
        ingest.acknowledge(transaction.number)
        deletion.acknowledge(None)


@operation(3, _has_table_with_rows)
def write_small(client: Client) -> None:
    """Adds the rows of several requests through a writer, which commits them together."""
    tables = [each for each in _with_rows(client) if not each.is_latest]
    if not tables:
        return
    table = client.random.choice(tables)
    results: list[tuple[Ingest, Future[WriteResult]]] = []
    with client.open(table).writer() as writer:
        for _ in range(client.random.randint(1, 3)):
            ingest, schema = make_ingest(client, table)
            ingest.kinds = ("write_request",)
            with answered(ingest):
                results.append(
                    (ingest, writer.submit(arrow_rows(table, ingest, schema), ingest.id))
                )
    for ingest, result in results:
        with answered(ingest):
            ingest.acknowledge(result.result().number)
