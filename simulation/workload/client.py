"""A client: one user or program that works with the instance, and what it has open.

The *catalogue* has the tables that the workload created, which all clients of a history share.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from simulation.faults import MetFaults
from simulation.model.journal import Copy, HeldRead, Journal, Submission
from simulation.model.tables import TableDefinition, TableKind
from simulation.workload.web import WebServer
from sleeper.api.reader import TableReader
from sleeper.api.table import Table
from sleeper.errors import InvalidRequestError, SleeperError
from sleeper.instance import Instance
from sleeper.query.changes.reader import ChangeReader
from sleeper.query.result import QueryResult
from sleeper.schema.model import Schema


class Environment(Protocol):
    """What clients use beside the instance: folders, files, and an exporter."""

    @property
    def exporter(self) -> str:
        """The name by which the instance has `simulation.systems.receiver.RecordingExporter`."""

    @property
    def machine_folder(self) -> Path:
        """A folder of a machine on which all clients work."""

    def put_source(self, name: str, content: bytes) -> str:
        """Stores a file to be ingested, and returns the path by which processes read it."""

    def destination(self, name: str) -> str:
        """Returns where stashes or backups of that name are written.

        It is a folder or a prefix of a bucket, which the instance's own tasks may write too.
        """


@dataclass(slots=True)
class CreatedTable:
    """A table of the catalogue. `definition` is that of the table it is a clone of."""

    name: str
    id: str
    definition: TableDefinition
    is_deleted: bool = False

    @property
    def is_latest(self) -> bool:
        return self.definition.kind in (TableKind.LATEST, TableKind.LATEST_BY)

    @property
    def is_snapshot(self) -> bool:
        return self.definition.kind is TableKind.SNAPSHOT


@dataclass(slots=True)
class Catalogue:
    """The tables of a history by their names, which are never used again.

    At most `tables_max` exist at the same time: fewer tables are changed more often.
    """

    tables_max: int = 4
    tables: dict[str, CreatedTable] = field(default_factory=dict)
    names_given: int = 0

    def has_room(self) -> bool:
        """Returns whether a table may be created."""
        return len(self.active()) < self.tables_max

    def new_name(self) -> str:
        """Returns a name that sorts after all others."""
        self.names_given += 1
        return f"table-{self.names_given:04}"

    def active(self) -> list[CreatedTable]:
        """Returns the tables that are not deleted, in the order of their names."""
        return [each for _, each in sorted(self.tables.items()) if not each.is_deleted]

    def deleted(self) -> list[CreatedTable]:
        """Returns the tables that are deleted, in the order of their names."""
        return [each for _, each in sorted(self.tables.items()) if each.is_deleted]


@dataclass(slots=True)
class OpenStream:
    """A query of a version whose batches are read one at a time, with the rows so far.

    `met` is how many faults threads of the client had met that renew its hold, None if the hold may
    be missing.
    """

    table: CreatedTable
    version: int
    batches: QueryResult
    met: int | None
    rows: Counter[tuple[object, ...]] = field(default_factory=Counter)


@dataclass(slots=True)
class OpenReader:
    """A reader that keeps a version of a table. See `OpenStream` for `met`.

    `held` is what the journal has of it.
    """

    table: CreatedTable
    reader: TableReader
    met: int | None
    held: HeldRead | None = None


@dataclass(slots=True)
class OpenFeed:
    """The feed of a table that a follower reads, with the copy that it keeps, in its turn."""

    table: CreatedTable
    copy: Copy
    changes: ChangeReader
    turn: int


@dataclass(frozen=True, slots=True)
class SentQuery:
    """A query of a version that was sent by message."""

    table: CreatedTable
    version: int
    id: str


@dataclass(slots=True)
class Client:
    """An opened instance, with the source of random choices and what the workload records.

    `count_faults` returns the faults that the client has met, None if it may lose a hold without
    one.
    """

    instance: Instance
    random: Random
    journal: Journal
    catalogue: Catalogue
    environment: Environment
    count_faults: Callable[[], MetFaults | None] = lambda: None
    # Looked up at each call, because a simulation replaces it.
    sleep: Callable[[float], None] = lambda seconds: time.sleep(seconds)
    streams: list[OpenStream] = field(default_factory=list)
    readers: list[OpenReader] = field(default_factory=list)
    feeds: list[OpenFeed] = field(default_factory=list)
    queries: list[SentQuery] = field(default_factory=list)
    server: WebServer | None = None

    def new_id(self, what: str) -> str:
        """Returns a random id."""
        return f"{what}-{self.random.getrandbits(64):016x}"

    def put_source(self, name: str, content: bytes) -> str:
        """Stores a file to be ingested, and returns the path by which processes read it."""
        return self.environment.put_source(name, content)

    def choose_table(self) -> CreatedTable:
        """Returns a random table. The operation needs one."""
        return self.random.choice(self.catalogue.active())

    def open(self, table: CreatedTable) -> Table:
        """Opens a table. NotFoundError if it was deleted."""
        return Table(self.instance, table.name)

    def close(self) -> None:
        """Closes what is open, except for the instance."""
        for stream in self.streams:
            stream.batches.close()
        for each in self.readers:
            self.close_reader(each)
        for feed in self.feeds:
            feed.changes.close()
        self.streams.clear()
        self.readers.clear()
        self.feeds.clear()
        if self.server is not None:
            self.server.close()
            self.server = None

    def note_hold(self, opened: OpenReader) -> None:
        """Records in the journal which version the reader holds now."""
        met = opened.met
        if met is None:
            return

        def is_kept() -> bool:
            now = self.count_faults()
            return now is not None and now.beside == met

        opened.held = HeldRead(opened.table.id, opened.reader.version, is_kept)
        self.journal.held_reads.append(opened.held)

    def forget_hold(self, opened: OpenReader) -> None:
        """Records that the reader may hold no version from now on."""
        if opened.held is not None:
            self.journal.held_reads.remove(opened.held)
            opened.held = None

    def close_reader(self, opened: OpenReader) -> None:
        """Closes the reader, which releases its version."""
        self.forget_hold(opened)
        opened.reader.close()

    def schema(self, table: CreatedTable) -> Schema:
        """Returns the newest schema of a table."""
        return self.open(table).schema


@contextmanager
def answered(submission: Submission) -> Iterator[Submission]:
    """Records in the submission what the block's error says of it."""
    try:
        yield submission
    except InvalidRequestError as error:
        submission.refuse(str(error))
        raise
    except SleeperError as error:
        submission.leave_open(f"{type(error).__name__}: {error}")
        raise
    except BaseException as error:
        submission.leave_open(type(error).__name__)
        raise
