"""An instance as its workflows see it: ports, whatever adapters stand behind them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sleeper.clock import Clock
from sleeper.errors import DataError, NotFoundError, StateMovedOnError
from sleeper.garbage_collection.orphans import ListObjects
from sleeper.jobs.event import JobKind
from sleeper.jobs.file_requests import FileRequests
from sleeper.jobs.query_tracker import QueryRecords
from sleeper.jobs.queue import DeadLetters, MessageQueue, QueueName, ResultsQueue
from sleeper.jobs.spark_platform import PlatformName, SparkPlatform
from sleeper.jobs.task_launcher import TaskLauncher
from sleeper.jobs.tracker import JobTracker, TaskTracker
from sleeper.properties.values import InstanceProperties, TableProperties
from sleeper.query_service.frames import SendFrame
from sleeper.statestore.store import StateStore
from sleeper.storage.location import DataRoot
from sleeper.tables.table_index import TableIndex, find_table
from sleeper.tables.table_ref import TableId, TableRef
from sleeper.user_code.loading import UserCode

if TYPE_CHECKING:
    # The engine takes a second to load, and many a command does without.
    from sleeper.query.engine import QueryEngine


AWS_PREFIX = "aws:"
"""What stands before the id of an AWS instance where an instance is named."""


class TablePropertiesStore(Protocol):
    """The published property files of tables."""

    def read(self, table_id: TableId) -> TableProperties:
        """The table's properties as they are now, or NotFoundError."""

    def write(self, table_id: TableId, properties: TableProperties) -> None:
        """Replaces the table's properties."""

    def change(self, table_id: TableId, changes: Mapping[str, str]) -> TableProperties:
        """Sets these, unsetting those that are empty; returns all as they are after."""


@dataclass(frozen=True, slots=True)
class Instance:
    """The ports of one instance. Safe for threads; each process opens its own.

    `queues` are those that it has; `queue` opens any. `launcher` is what starts tasks of a kind,
    if the instance has tasks; `spark_platform` what runs bulk imports. `state` gives a table's
    state store, opened once per process. `spill_folder` is a folder of this process on local
    disk. `make_table` and
    `remove_table` make and delete what a table needs before its index row stands, and after;
    `find_files` gives the files that an ingest of a path would read, with their bytes.
    `abandoned_tables` are those of a creation that died before a time.
    `recover_dead_workers` gives back what processes held that are gone. `code` is what
    wheels of users register. `query_engine` is kept warm while the instance is open.
    `query_tracker` knows of queries that came as messages; `results_root` is where their rows
    go, by bucket (None: the instance's own), `results_queue` a queue of them by URL (None: the
    instance's default), and `send_frame` sends to a client's WebSocket.
    `switch_schedules` turns what starts background work on or off, and says what that is.
    """

    where: str
    properties: Callable[[], InstanceProperties]
    change_properties: Callable[[Mapping[str, str]], InstanceProperties]
    tables: TableIndex
    table_properties: TablePropertiesStore
    jobs: JobTracker
    tasks: TaskTracker
    queues: tuple[QueueName, ...]
    queue: Callable[[QueueName], MessageQueue]
    dead_letters: Callable[[QueueName], DeadLetters]
    file_requests: Callable[[], FileRequests]
    find_files: Callable[[str], Sequence[tuple[str, int]]]
    launcher: Callable[[JobKind], TaskLauncher]
    spark_platform: Callable[[PlatformName], SparkPlatform]
    root: DataRoot
    state: Callable[[TableId], StateStore]
    make_table: Callable[[TableId], None]
    remove_table: Callable[[TableId], None]
    abandoned_tables: Callable[[int], tuple[TableId, ...]]
    list_objects: ListObjects
    recover_dead_workers: Callable[[], int]
    spill_folder: Callable[[], Path]
    query_engine: Callable[[], "QueryEngine"]
    query_tracker: Callable[[], QueryRecords]
    results_root: Callable[[str | None], DataRoot]
    results_queue: Callable[[str | None], ResultsQueue]
    send_frame: SendFrame
    switch_schedules: Callable[[bool], tuple[str, ...]]
    code: UserCode
    clock: Clock
    close: Callable[[], None]

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine."""
        return not self.where.startswith(AWS_PREFIX)

    def table(self, name: str) -> "OpenTable":
        """The active table of that name, or NotFoundError."""
        return OpenTable(self, self.tables.by_name(name))


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table of an instance, with its properties and state at hand."""

    instance: Instance
    ref: TableRef

    @property
    def state(self) -> StateStore:
        return self.instance.state(self.ref.id)

    def properties(self) -> TableProperties:
        """The table's properties as they are now.

        StateMovedOnError if the table was deleted meanwhile. DataError if its property file is
        missing: what asks for the table must not be dropped, as for a table that does not exist.
        """
        try:
            return self.instance.table_properties.read(self.ref.id)
        except NotFoundError as error:
            self.check_active()
            raise DataError(f"table {self.ref.name!r} has no properties: {error}") from error

    def check_active(self) -> None:
        """StateMovedOnError if the table was deleted since it was looked up.

        Whoever worked for long asks before a commit: the log of a deleted table is gone, and what
        is committed to it is nowhere.
        """
        try:
            find_table(self.instance.tables, None, self.ref.id)
        except NotFoundError as error:
            raise StateMovedOnError(f"table {self.ref.name!r} was deleted meanwhile") from error
