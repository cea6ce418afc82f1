"""Objects, logs and property files of an AWS instance's tables."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import obstore

from sleeper.aws.config_bucket import PropertyFiles
from sleeper.aws.state_copies import StateCopies
from sleeper.aws.transaction_log import DynamoTransactionLog
from sleeper.storage.bucket_folder import store_errors
from sleeper.storage.location import DataRoot
from sleeper.tables.table_index import TableIndex
from sleeper.tables.table_ref import TableId, TableState

_TABLE_ID = re.compile("[0-9a-f]{8}")
_DELETED_AT_ONCE = 1000
# The first object of a table. It marks a creation that a crash left without a row in the index.
_MARKER = "created"


@dataclass(frozen=True, slots=True)
class AwsTables:
    """The tables' objects, logs, property files and copies of states."""

    index: TableIndex
    root: DataRoot
    files: PropertyFiles
    copies: StateCopies
    open_log: Callable[[TableId], DynamoTransactionLog]

    def create(self, table_id: TableId) -> None:
        """Creates the table's first object, before its row in the index."""
        path = f"{table_id}/{_MARKER}"
        with store_errors(path):
            obstore.put(self.root.store, path, b"")

    def remove(self, table_id: TableId) -> None:
        """Deletes everything of the table except its row. It can be repeated after a crash."""
        self.copies.forget(table_id)
        self.open_log(table_id).delete()
        self.files.remove(table_id)
        paths = (each.path for each in self.root.list_objects(f"{table_id}/"))
        marker = f"{table_id}/{_MARKER}"
        others = (path for path in paths if path != marker)
        while some := list(islice(others, _DELETED_AT_ONCE)):
            self.root.delete(some)
        # Last, because `abandoned` finds the other objects by it.
        self.root.delete([marker])

    def abandoned(self, older_than_ms: int) -> tuple[TableId, ...]:
        """Returns tables without a row that were last written before that time."""
        written = self.files.written_ms()
        created = {*written, *self._with_objects()}
        if not created:
            return ()
        # After the files, because a table may get its row in between.
        listed = {ref.id for state in TableState for ref in self.index.list(state)}
        newest = {i: self._written_ms(i, written.get(i)) for i in sorted(created - listed)}
        return tuple(i for i, ms in newest.items() if ms is not None and ms < older_than_ms)

    def _with_objects(self) -> Iterator[TableId]:
        with store_errors(""):
            folders = obstore.list_with_delimiter(self.root.store)["common_prefixes"]
        names = (folder.strip("/") for folder in folders)
        return (TableId(name) for name in names if _TABLE_ID.fullmatch(name))

    def _written_ms(self, table_id: TableId, file_written_ms: int | None) -> int | None:
        """Returns the time of the table's last write, or None if it has no files."""
        times = [each.modified_ms for each in self.root.list_objects(f"{table_id}/")]
        return max([*times, *([] if file_written_ms is None else [file_written_ms])], default=None)
