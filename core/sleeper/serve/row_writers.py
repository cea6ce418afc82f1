"""Writers of the rows that callers post, one for each table and caller."""

from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from sleeper.datafiles.sources.budget import RowLimits
from sleeper.ingest.request_results import WriteResult
from sleeper.ingest.row_writer import OnGroup, RowWriter, WriterLimits, ignore_group
from sleeper.ingest.small_rows import Content
from sleeper.instance import Instance
from sleeper.reports.access import check_write_access
from sleeper.serve.access import TableAccess, open_table

# Groups of as many tables are written at the same time.
_THREADS = 4
_WRITERS_MAX = 1_000


class RowWriters:
    """Writes rows, those of many requests together. An object belongs to one event loop."""

    def __init__(
        self,
        instance: Instance,
        on_group: OnGroup = ignore_group,
        row_limits: RowLimits | None = None,
    ) -> None:
        self._instance = instance
        self._limits = WriterLimits(rows=row_limits or RowLimits())
        self.on_group = on_group
        self._executor = ThreadPoolExecutor(_THREADS, "row-writer")
        self._writers: dict[TableAccess, RowWriter] = {}

    def submit(
        self, access: TableAccess, content: Content, request_id: str | None
    ) -> "Future[WriteResult]":
        """Takes a request. Its future has the result, or the error, when the rows are durable.

        UnavailableError if too many requests wait.
        """
        writer = self._writers.get(access)
        if writer is None:
            if len(self._writers) >= _WRITERS_MAX:
                self._writers = {a: each for a, each in self._writers.items() if not each.is_idle}
            writer = RowWriter(
                partial(open_table, self._instance, access, check_write_access),
                self._executor,
                self._limits,
                self.on_group,
            )
            self._writers[access] = writer
        return writer.submit(content, request_id)

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return sum(each.waiting for each in list(self._writers.values()))
