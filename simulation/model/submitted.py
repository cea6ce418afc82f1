"""The rows of a committed ingest, from the journal."""

import json
from collections.abc import Iterator, Sequence

from simulation.model.journal import Ingest, Journal, SourceRow
from simulation.model.values import Value, comparable
from simulation.model.visible import StoredRow
from simulation.systems.records import AdapterSource
from sleeper.schema.defaults import default_value
from sleeper.schema.model import Field, Schema
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.statestore.transactions.record_requests import RecordRequests
from sleeper.statestore.transactions.transaction import Transaction


class UnknownSubmissionError(Exception):
    """Nobody submitted the rows of a transaction."""


def stored_rows(
    journal: Journal, transaction: AddFiles, before: Sequence[Transaction], schema: Schema
) -> tuple[StoredRow, ...]:
    """Returns the rows that the transaction adds, as the files of the schema have them.

    `before` are the transactions before it in its entry. UnknownSubmissionError if the journal has
    no such submission.
    """
    result: list[StoredRow] = []
    ingest = journal.ingests.get(transaction.id)
    # In JSON lines, a missing member is null.
    has_defaults = ingest is None or not any(each.endswith(".json") for each in ingest.files)
    for rows, deletes in _submitted(journal, transaction, before):
        result += (
            StoredRow(_row_values(row, schema, has_defaults), position in deletes)
            for position, row in enumerate(rows)
        )
    return tuple(result)


def _submitted(
    journal: Journal, transaction: AddFiles, before: Sequence[Transaction]
) -> Iterator[tuple[Sequence[SourceRow], frozenset[int]]]:
    ingest = journal.ingests.get(transaction.id)
    if ingest is not None:
        yield ingest.rows, ingest.deletes
        return
    source = _adapter_source(journal, transaction.id)
    if source is not None:
        yield source.rows, frozenset()
        return
    requests = [each for each in before if isinstance(each, RecordRequests)]
    if requests:
        for request in requests[-1].requests:
            yield _ingest(journal, request.id).rows, _ingest(journal, request.id).deletes
        return
    for name in _ordered_names(journal, transaction):
        if name not in journal.files:
            raise UnknownSubmissionError(transaction.id)
        yield journal.files[name], frozenset()


def batch_names(journal: Journal, transaction: AddFiles) -> list[str]:
    """Returns the names of the files of a job of the batcher, none for other jobs."""
    try:
        names = _ordered_names(journal, transaction)
    except UnknownSubmissionError:
        return []
    return [name for name in names if name in journal.files]


def _ordered_names(journal: Journal, transaction: AddFiles) -> list[str]:
    """Returns the names of the files of a job of the batcher, in its order."""
    names = _file_names(transaction.request)
    ordered = [_name_of(path) for path in journal.batches.get(transaction.id, ())]
    return ordered if sorted(ordered) == sorted(names) else names


def _ingest(journal: Journal, request_id: str) -> Ingest:
    if request_id not in journal.ingests:
        raise UnknownSubmissionError(request_id)
    return journal.ingests[request_id]


def _adapter_source(journal: Journal, job_id: str) -> AdapterSource | None:
    """Returns the source of an adapter's run: `adapter-NAME:RUN`."""
    name = job_id.partition(":")[0].removeprefix("adapter-")
    return journal.adapters.get(name)


def _file_names(request: str | None) -> list[str]:
    """Returns the names of the files that the request of a job of the batcher lists."""
    raw = json.loads(request or "[]")
    paths = raw.get("files", []) if isinstance(raw, dict) else raw
    if not paths:
        raise UnknownSubmissionError(request)
    return [_name_of(path) for path in paths]


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]


def _row_values(row: SourceRow, schema: Schema, has_defaults: bool) -> tuple[Value, ...]:
    return tuple(
        comparable(row[each.name]) if each.name in row else _missing_value(each, has_defaults)
        for each in schema.fields
    )


def _missing_value(field: Field, has_defaults: bool) -> Value:
    """Returns the value of a field that the source lacks, which only added fields may be."""
    if field.default is None or not has_defaults:
        return None
    return comparable(default_value(field))
