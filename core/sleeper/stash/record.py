"""The record of a stash, in the storage of its instance (docs/design/0015-stash.md).

A record is a folder `stashes/<digest of the destination>/<root name>/`. Its objects are created
once and never change, so processes that do the same work at the same time agree on the first.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Annotated

from sleeper.errors import ConflictError, DataError, NotFoundError
from sleeper.json_codec import JsonCodec, Member, camel_case
from sleeper.schema.model import Schema
from sleeper.stash.layout import StashFormat, table_directory
from sleeper.stash.progress import Progress, TableProgress, TaskResult
from sleeper.storage.location import UNFINISHED_SUFFIX, DataRoot
from sleeper.tables import TableId

STASHES_FOLDER = "stashes"
RUNNING_FOLDER = "stashes/running"
"""The folder of objects that exist while their stashes run."""
_REQUEST = "request.json"
_VERSIONS = "cuts.json"
_DECISION = "decision.json"
_SUBMITTED = "submitted"
_PROBLEM_CHARACTERS_MAX = 2000


class Trigger(Enum):
    """What started a stash."""

    COMMAND = "command"
    SCHEDULE = "schedule"


@dataclass(frozen=True, slots=True)
class StashRequest:
    """What a stash copies, and where to, as `parse_destination` returns it.

    No tables means all whose name matches none of the patterns in `exclude`.
    A submitted stash is made by workers, and any other by the process that starts it. `started_ms`
    is the time of the start, and the name of a scheduled stash is its due time. `requests` are the
    ids of those that it fulfils (`sleeper.stash.requests`). `piece_bytes` is the size of the data
    files of a piece; without it, each table's property.
    """

    destination: str
    tables: tuple[str, ...] = ()
    atomic: bool = False
    piece_bytes: Annotated[int | None, Member(optional=True)] = None
    format: StashFormat = StashFormat.JSON
    trigger: Trigger = Trigger.COMMAND
    submitted: bool = False
    started_ms: Annotated[int, Member("started")] = 0
    requests: Annotated[tuple[str, ...], Member(optional=True)] = ()
    exclude: Annotated[tuple[str, ...], Member(optional=True)] = ()


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table and the transaction at which it is copied: its number, and its time in milliseconds.

    A hold of the table keeps the files of that version. `piece_bytes`, and the number of
    `sketches` that are read to divide a leaf, do not change while the table is planned, because
    its tasks follow from them.
    """

    table: str
    id: TableId
    number: Annotated[int, Member("version")]
    time_ms: Annotated[int, Member("time")]
    hold: str
    table_schema: Annotated[Schema, Member("schema")]
    piece_bytes: int
    sketches: int

    @property
    def directory(self) -> str:
        """The directory of the table's files."""
        return table_directory(self.table)


class Outcome(Enum):
    """How a stash ends."""

    COMPLETE = "complete"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Decision:
    """The end of a stash, which is decided once, before anything is done about it."""

    outcome: Outcome
    at_ms: Annotated[int, Member("at")]
    reason: Annotated[str | None, Member(optional=True)] = None


_REQUEST_CODEC = JsonCodec(StashRequest, camel_case)
_VERSION_CODEC = JsonCodec(TableVersion)
_DECISION_CODEC = JsonCodec(Decision)


@dataclass(frozen=True)
class StashRecord:
    """The record of one stash. `name` is that of its root below the destination."""

    own: DataRoot
    digest: str
    name: str

    @property
    def key(self) -> str:
        """The record's name in messages."""
        return f"{self.digest}/{self.name}"

    @property
    def folder(self) -> str:
        """The path of the record's folder."""
        return f"{STASHES_FOLDER}/{self.key}"

    @cached_property
    def request(self) -> StashRequest:
        """What was asked for. NotFoundError if there is no such stash."""
        path = self._path(_REQUEST)
        try:
            return _REQUEST_CODEC.parse(self._text(path), self.own.url_of(path), DataError)
        except NotFoundError:
            raise NotFoundError(f"stash {self.name} has no record in this instance") from None

    @property
    def lock_path(self) -> str:
        """The path of the lock of the process that makes the stash."""
        return f"{STASHES_FOLDER}/{self.digest}-{self.name}.lock"

    def claim(self, request: StashRequest) -> bool:
        """Records what was asked for. Returns False if the record exists already."""
        content = _lines([_REQUEST_CODEC.format(request)])
        return self.own.create(self._path(_REQUEST), content)

    def is_claimed(self) -> bool:
        """Returns whether the record exists."""
        try:
            return bool(self.request)
        except NotFoundError:
            return False  # a process died before it had claimed the name

    def versions(self) -> tuple[TableVersion, ...] | None:
        """Returns the versions of the tables; None before they are planned."""
        path = self._path(_VERSIONS)
        try:
            lines = self._text(path).splitlines()
        except NotFoundError:
            return None
        return tuple(_VERSION_CODEC.parse(line, self.own.url_of(path), DataError) for line in lines)

    def record_versions(self, versions: Iterable[TableVersion]) -> bool:
        """Records the versions. Returns False if another process did before."""
        return self.own.create(
            self._path(_VERSIONS), _lines(_VERSION_CODEC.format(version) for version in versions)
        )

    def decision(self) -> Decision | None:
        """Returns how the stash ends; None while that is open."""
        path = self._path(_DECISION)
        try:
            return _DECISION_CODEC.parse(self._text(path), self.own.url_of(path), DataError)
        except NotFoundError:
            return None

    def decide(self, decision: Decision) -> Decision:
        """Decides how the stash ends. Returns the decision that counts, which is the first."""
        if self.own.create(self._path(_DECISION), _lines([_DECISION_CODEC.format(decision)])):
            return decision
        first = self.decision()
        if first is None:
            raise ConflictError(f"stash {self.name} was deleted meanwhile")
        return first

    def write_task(self, table_id: TableId, number: int, content: bytes) -> None:
        """Records a task. The content is the same each time that it is planned."""
        self._replace(f"tasks/{table_id}/{number}.json", content)

    def read_task(self, table_id: TableId, number: int) -> bytes:
        """Returns a recorded task. NotFoundError if there is none."""
        return self.own.read(self._path(f"tasks/{table_id}/{number}.json"))

    def record_planned(self, table_id: TableId, tasks: int) -> None:
        """Records that all tasks of a table are recorded."""
        self._create(f"planned/{table_id},{tasks}")

    def record_spark(self, table_id: TableId) -> None:
        """Records that a Spark job writes a table."""
        self._create(f"spark/{table_id}/chosen")

    def record_spark_run(self, table_id: TableId, attempt: int, reference: str) -> None:
        """Records a Spark job that was started, by the platform's reference."""
        self.own.create(self._path(f"spark/{table_id}/{attempt}"), reference.encode())

    def spark_runs(self, table_id: TableId) -> list[str]:
        """Returns the references of the Spark jobs of a table, the last one at the end."""
        folder = f"spark/{table_id}"
        names = [path.rpartition("/")[2] for path in self._paths(folder)]
        attempts = sorted(int(name) for name in names if name.isdecimal())
        return [self._text(self._path(f"{folder}/{attempt}")) for attempt in attempts]

    def record_done(self, table_id: TableId, number: int, result: TaskResult) -> None:
        """Records that a task is done."""
        counts = f"{result.rows},{result.files},{result.bytes}"
        self._create(f"done/{table_id}/{number}/{counts}")

    def is_done(self, table_id: TableId, number: int) -> bool:
        """Returns whether a task is done, or its table is omitted."""
        dropped = self._path(f"dropped/{table_id}")
        return any(self._paths(f"done/{table_id}/{number}")) or dropped in self._paths("dropped")

    def record_dropped(self, table_id: TableId) -> None:
        """Records that a table was deleted, so that it is omitted."""
        self._create(f"dropped/{table_id}")

    def record_problem(self, table_id: TableId, number: int, text: str) -> None:
        """Records the last error of a task."""
        content = text[:_PROBLEM_CHARACTERS_MAX].encode(errors="replace")
        self._replace(f"problems/{table_id},{number}", content)

    def record_kept(self, at_ms: int) -> None:
        """Records that the holds of the versions were renewed."""
        self._create(f"kept/{at_ms}")

    def kept_ms(self) -> int:
        """Returns the time of the last renewal of the holds; 0 before the first."""
        return max((int(path.rpartition("/")[2]) for path in self._paths("kept")), default=0)

    def problems(self, progress: Progress) -> list[str]:
        """Returns the last errors of tasks that are not done according to `progress`."""
        texts = []
        for path in sorted(self._paths("problems")):
            table_id, _, number = path.rpartition("/")[2].partition(",")
            table = progress.get(TableId(table_id), TableProgress())
            if int(number) not in table.done:
                texts.append(self._text(path))
        return list(dict.fromkeys(texts))

    def progress(self) -> Progress:
        """Returns the progress of each table, from the names of all objects of the record."""
        tables: Progress = defaultdict(TableProgress)
        start = len(self.folder) + 1
        for path in self._paths(""):
            kind, *rest = path[start:].split("/")
            if kind == "planned":
                table_id, _, count = rest[0].partition(",")
                tables[TableId(table_id)].tasks = int(count)
            elif kind == "done":
                counts = map(int, rest[2].split(","))
                tables[TableId(rest[0])].done[int(rest[1])] = TaskResult(*counts)
            elif kind == "spark":
                tables[TableId(rest[0])].uses_spark = True
            elif kind == "dropped":
                tables[TableId(rest[0])].is_dropped = True
        return dict(tables)

    def is_running(self) -> bool:
        """Returns whether the stash was started and has not ended."""
        return self._exists(self.running_path)

    def submit(self) -> None:
        """Records that workers make the stash, which a process had begun."""
        self._create(_SUBMITTED)

    def is_submitted(self) -> bool:
        """Returns whether workers make the stash."""
        return self.request.submitted or self._exists(self._path(_SUBMITTED))

    def record_end(self) -> None:
        """Takes the stash out of those that run."""
        self.own.delete([self.running_path, self.lock_path])

    def delete(self) -> None:
        """Deletes the record. Idempotent."""
        self.record_end()
        request = self._path(_REQUEST)
        paths = [each.path for each in self.own.list_objects(self.folder) if each.path != request]
        self.own.delete(paths)
        self.own.delete([request])
        self.own.remove_empty_folders(self.folder)

    @property
    def running_path(self) -> str:
        """The path of an object that exists while the stash runs."""
        return f"{RUNNING_FOLDER}/{self.digest}~{self.name}"

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def _text(self, path: str) -> str:
        return self.own.read(path).decode(errors="replace")

    def _exists(self, path: str) -> bool:
        try:
            self.own.read(path)
        except NotFoundError:
            return False
        return True

    def _paths(self, folder: str) -> list[str]:
        """Returns the paths below a folder, without torn objects of killed processes."""
        below = f"{self.folder}/{folder}".rstrip("/")
        paths = (each.path for each in self.own.list_objects(below))
        return [path for path in paths if not path.endswith(UNFINISHED_SUFFIX)]

    def _create(self, name: str) -> None:
        self.own.create(self._path(name), b"")

    def _replace(self, name: str, content: bytes) -> None:
        with self.own.replacing(self._path(name)) as sink:
            sink.write(content)


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
