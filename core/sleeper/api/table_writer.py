"""A writer of small batches of rows."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from sleeper.api.rows import Rows, list_paths, read_batches
from sleeper.datafiles.arrow import arrow_schema
from sleeper.errors import InvalidRequestError
from sleeper.ingest.request_results import WriteResult
from sleeper.ingest.row_writer import RowWriter
from sleeper.ingest.service import find_source_schema
from sleeper.ingest.small_rows import encode_stream
from sleeper.instance import Instance as Ports


class TableWriter:
    """Writes small batches of rows, those of several threads together.

    All rows that wait are written to one file and committed in one transaction, so many threads, or
    many calls of `submit`, write many times as fast as single ingests. It is a context manager,
    whose end waits for all rows.
    """

    def __init__(self, instance: Ports, name: str) -> None:
        self._name = name
        self._executor: ThreadPoolExecutor | None = ThreadPoolExecutor(1, f"writer of {name}")
        self._writer = RowWriter(lambda: instance.table(name), self._executor)
        self._find_schema = lambda: arrow_schema(find_source_schema(instance.table(name)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def write(self, rows: Rows, id: str | None = None) -> WriteResult:
        """Adds rows to the table, and returns when they are durable. Threads may share the writer.

        `rows` are as of `Table.ingest`, but no paths, and fit into memory. With an `id` the call is
        idempotent: a repeated call with the id of an earlier one, within 30 days, adds nothing and
        returns the result of the earlier one, with `already_done`. The result has the number of
        `rows` and the `number` of the transaction.

        Raises `InvalidRequestError` with the row and field of a value that does not fit the schema;
        other calls are not affected. Raises `ConflictError` if the id was used for other rows, and
        `UnavailableError` if a resource is missing or too many rows wait. After `UnavailableError`
        the rows may or may not be in the table: repeat the call with its id.
        """
        return self.submit(rows, id).result()

    def submit(self, rows: Rows, id: str | None = None) -> "Future[WriteResult]":
        """Takes rows and returns a future of the result of `write`, which raises its errors.

        Raises `UnavailableError` if more than 32 MiB of rows wait: nothing was taken.
        """
        if self._executor is None:
            raise InvalidRequestError(f"the writer of table {self._name!r} is closed")
        if list_paths(rows) is not None:
            raise InvalidRequestError("a writer takes no paths of files (expected Table.ingest)")
        batches = list(read_batches(rows, self._find_schema))
        if not batches:
            raise InvalidRequestError("there are no rows (expected at least one)")
        return self._writer.submit(encode_stream(batches), id)

    def close(self) -> None:
        """Waits until all rows are written."""
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None
