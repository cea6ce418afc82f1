"""The report on the ingest batcher: the files that wait for a job."""

from collections.abc import Sequence
from itertools import chain

from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.jobs.file_requests import FileRequest
from sleeper.reports.jobs import name_tables
from sleeper.reports.output import Column, ColumnKind, Listing, describe_omission, pluralize
from sleeper.tables import TableId

_COLUMNS = (
    Column("file", "File", ColumnKind.PATH, lambda each: each[0].path),
    Column("table", "Table", value=lambda each: each[1]),
    Column("bytes", "Bytes", ColumnKind.BYTES, lambda each: each[0].size_bytes),
    Column("received", "Received", ColumnKind.TIME, lambda each: each[0].received_ms),
    Column("job", "Job", value=lambda each: each[0].job_id),
)


def list_waiting_files(
    instance: Instance, table_id: TableId | None = None, limit: int | None = None
) -> Listing:
    """Lists waiting files, oldest first, with `table_id` those of one table.

    A file with a job is about to be sent.
    """
    waiting = sorted(_read(instance, table_id), key=lambda each: (each.received_ms, each.id))
    names = name_tables(instance.tables.index)
    size = sum(each.size_bytes for each in waiting)
    shown = [(each, names.get(each.table_id, each.table_id)) for each in waiting[:limit]]
    return Listing.describe(
        "ingest-batcher",
        f"{pluralize(len(waiting), 'waiting file')}, {size:,} bytes",
        _COLUMNS,
        shown,
        describe_omission(len(waiting), len(shown), "waiting file"),
    )


def _read(instance: Instance, table_id: TableId | None) -> Sequence[FileRequest]:
    try:
        requests = instance.jobs.file_requests()
    except InvalidRequestError:
        return ()  # an instance on AWS without the batcher
    tables = requests.tables() if table_id is None else (table_id,)
    return list(chain.from_iterable(map(requests.waiting, tables)))
