"""The ports of an instance, in groups."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sleeper.billing.use import MonthlyUse
from sleeper.clock import Clock
from sleeper.errors import DataError, NotFoundError, StateMovedOnError
from sleeper.jobs.event import JobKind
from sleeper.jobs.file_requests import FileRequests
from sleeper.jobs.query_tracker import QueryRecords, SendFrame
from sleeper.jobs.queue import DeadLetters, ExternalQueue, MessageQueue, QueueName, ResultsQueue
from sleeper.jobs.spark_platform import PlatformName, SparkPlatform
from sleeper.jobs.tracker import JobTracker, TaskLauncher, TaskTracker
from sleeper.processing.enrichment import Lookup
from sleeper.properties.values import InstanceProperties, TableProperties
from sleeper.schema.model import Schema
from sleeper.statestore.store import StateStore
from sleeper.storage.bucket import Bucket
from sleeper.storage.bucket_folder import SourceFile
from sleeper.storage.location import DataRoot
from sleeper.system_ports import SystemPorts
from sleeper.tables import TableId, TableIndex, TableRef, find_table
from sleeper.user_code.loading import UserCode

if TYPE_CHECKING:
    from sleeper.datafiles.sources.enrichment import RowEnrichment

    # The engine takes a second to load, and many commands do not need it.
    from sleeper.query.engine import QueryEngine


AWS_PREFIX = "aws:"
"""The prefix of an AWS instance's id where an instance is named."""


class TablePropertiesStore(Protocol):
    """The published property files of tables."""

    def read(self, table_id: TableId) -> TableProperties:
        """Returns the table's current properties, or NotFoundError."""

    def write(self, table_id: TableId, properties: TableProperties) -> None:
        """Replaces the table's properties."""

    def change(self, table_id: TableId, changes: Mapping[str, str]) -> TableProperties:
        """Sets values and returns all properties. An empty value unsets its property."""


class Sources(Protocol):
    """Users' files and their names in jobs."""

    def find(self, path: str) -> Sequence[tuple[str, int]]:
        """Returns the files that an ingest of the path would read, with their sizes in bytes.

        InvalidRequestError if there is none, or access is not allowed.
        """

    def open(self, name: str) -> SourceFile:
        """Returns the file, folder or prefix of that name. InvalidRequestError as above."""

    def job_name(self, path: str) -> str:
        """Returns the name by which a job of this process finds the file, from any folder."""

    def check_submitted(self, path: str) -> None:
        """Raises InvalidRequestError if workers could not read a file of that name."""

    def check_message(self, names: Iterable[str]) -> None:
        """Raises InvalidRequestError if messages may not name one of the files."""

    def buckets(self) -> tuple[Bucket, ...]:
        """Returns the instance's own bucket, if it has one, and those of users' files."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of an instance.

    `state` opens a table's state store, once per process. `create` makes a table's files before it
    is in the index, and `delete` removes them after. `install` makes the file of
    `StateStore.copy_version` the state of a table that is not in the index, and can be repeated.
    `abandoned` returns tables whose creation failed before the given time. `announce_commits`
    announces commits of so many threads, which may share requests, and yields a function that each
    thread calls after its commit.
    """

    index: TableIndex
    properties: TablePropertiesStore
    state: Callable[[TableId], StateStore]
    create: Callable[[TableId], None]
    install: Callable[[TableId, Path], None]
    delete: Callable[[TableId], None]
    abandoned: Callable[[int], tuple[TableId, ...]]
    announce_commits: Callable[[int], AbstractContextManager[Callable[[], None]]]


@dataclass(frozen=True, slots=True)
class Jobs:
    """Queues, trackers, tasks and platforms.

    `queues` are the instance's queues, and `queue` opens one. `external_queue` opens a queue of SQS
    by its URL or name. `launcher` starts tasks and
    `spark_platform` runs bulk imports; both are None where this machine does the work itself.
    If `has_remote_tasks` is set, only missing heartbeats show that a task was killed; otherwise its
    process is on this machine.
    """

    tracker: JobTracker
    tasks: TaskTracker
    has_remote_tasks: bool
    queues: tuple[QueueName, ...]
    queue: Callable[[QueueName], MessageQueue]
    dead_letters: Callable[[QueueName], DeadLetters]
    external_queue: Callable[[str], ExternalQueue]
    file_requests: Callable[[], FileRequests]
    launcher: Callable[[JobKind], TaskLauncher] | None
    spark_platform: Callable[[PlatformName], SparkPlatform] | None


@dataclass(frozen=True, slots=True)
class Storage:
    """The locations of objects.

    `exports` and `imports` are the locations of bulk exports and of runs of bulk imports.
    `spill_folder` is a folder of this process on local disk, and `shared_folder` one of this name
    that the processes of this machine share. `find_old_versions` describes what keeps deleted
    objects of the root, and returns None if nothing does. `released_reserve` is a
    context in which a collection finds space on a full disk; it yields whether the disk is full.
    """

    root: DataRoot
    exports: Callable[[], DataRoot]
    imports: Callable[[], DataRoot]
    sources: Sources
    spill_folder: Callable[[], Path]
    shared_folder: Callable[[str], Path]
    find_old_versions: Callable[[], str | None]
    released_reserve: Callable[[], AbstractContextManager[bool]] = lambda: nullcontext(False)


@dataclass(frozen=True, slots=True)
class Queries:
    """The query engine, the query tracker and the destinations of results.

    `engine` is loaded on first use and kept while the instance is open. `results_root` is the
    location of rows in a bucket, and `results_queue` the queue of a URL; None means the instance's
    own. `send_frame` sends to a client's WebSocket; it is None without a gateway.
    """

    engine: Callable[[], "QueryEngine"]
    tracker: Callable[[], QueryRecords]
    results_root: Callable[[str | None], DataRoot]
    results_queue: Callable[[str | None], ResultsQueue]
    send_frame: SendFrame | None


@dataclass(frozen=True, slots=True)
class BackgroundWork:
    """Background work that `sleeper run` does in processes of this machine.

    `recover` returns the messages of dead processes to their queues, ends their runs, and
    returns how many messages there were. `vacuum` removes the remains of deleted messages from
    the instance's database; it returns False if a reader keeps them.
    """

    folder: Path
    recover: Callable[[], int]
    vacuum: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Instance:
    """The ports of one instance. Safe for threads; each process opens its own.

    `where` names the instance as `opening.open_instance` takes it. `background` is None where
    schedules of the platform start background work, and `switch_schedules`, which turns them on
    or off and returns their names, is None where there are none. `code` holds users' wheels.
    `systems` has what systems keep beside the tables. `read_secret` returns a secret of the
    platform by its name, and is None where there are none.
    `open_enrichment` opens the lookups of a table for one job, whose rows have the schema. It has
    what was committed to its inputs before the call, and does not change. It raises
    UnavailableError if an input does not respond, and InvalidRequestError if the lookups do not fit
    the table or their inputs. `monthly_use` returns what AWS bills, except for so many bytes of
    data files, and is None where it bills nothing. A `read_only` instance refuses changes with
    InvalidRequestError.
    """

    where: str
    properties: Callable[[], InstanceProperties]
    change_properties: Callable[[Mapping[str, str]], InstanceProperties]
    tables: Tables
    jobs: Jobs
    storage: Storage
    queries: Queries
    background: BackgroundWork | None
    switch_schedules: Callable[[bool], tuple[str, ...]] | None
    code: UserCode
    read_secret: Callable[[str], str] | None
    open_enrichment: "Callable[[OpenTable, Sequence[Lookup], Schema], RowEnrichment]"
    systems: SystemPorts
    clock: Clock
    close: Callable[[], None]
    monthly_use: Callable[[int], Sequence[MonthlyUse]] | None = None
    read_only: bool = False

    def table(self, name: str) -> "OpenTable":
        """Returns the active table of that name. NotFoundError if there is none."""
        return OpenTable(self, self.tables.index.find(name))


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table of an instance, with its properties and state."""

    instance: Instance
    ref: TableRef

    @property
    def state(self) -> StateStore:
        return self.instance.tables.state(self.ref.id)

    def properties(self) -> TableProperties:
        """Returns the table's current properties.

        StateMovedOnError if the table was deleted. A missing property file is DataError, not
        NotFoundError, because a message for a table that does not exist would be dropped.
        """
        try:
            return self.instance.tables.properties.read(self.ref.id)
        except NotFoundError as error:
            self.check_active()
            raise DataError(f"table {self.ref.name!r} has no properties: {error}") from error

    def check_active(self) -> None:
        """Raises StateMovedOnError if the table was deleted after its lookup.

        A long run checks it before its commit, because a commit to a deleted table is lost.
        """
        try:
            find_table(self.instance.tables.index, None, self.ref.id)
        except NotFoundError as error:
            raise StateMovedOnError(f"table {self.ref.name!r} was deleted") from error
