"""The schedules of an instance's stashes, one for each destination.

A schedule is `stashes/schedules/<digest of the destination>.json` in the instance's storage.
Beside it, `<digest>.due` has the last due time that was decided, in milliseconds since the epoch,
`<digest>.pruned` the due time after which old stashes were deleted last, and `<digest>.reason` why
the stash that is due has not started.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

from sleeper.errors import DataError, NotFoundError
from sleeper.instance import Instance
from sleeper.json_codec import JsonCodec, Member, camel_case
from sleeper.schedule import Schedule, make_schedule, missed_due_ms
from sleeper.stash.destination import parse_destination
from sleeper.stash.layout import StashFormat, root_name
from sleeper.stash.message import check_workers
from sleeper.stash.prune import parse_age
from sleeper.stash.record import STASHES_FOLDER, StashRequest, Trigger
from sleeper.stash.record_index import destination_digest
from sleeper.stash.start import check_request
from sleeper.storage.location import DataRoot

DAILY = "cron(0 0 * * ? *)"
"""Midnight in UTC."""

_FOLDER = f"{STASHES_FOLDER}/schedules"
_ENDING, _DUE, _PRUNED, _REASON = ".json", ".due", ".pruned", ".reason"
_OPTIONAL = Member(optional=True)


@dataclass(frozen=True, slots=True)
class StashSchedule:
    """When stashes of a destination start, and what they copy, as a `StashRequest`.

    If `only_if_requested`, a due stash starts only if somebody requested one since the last start.
    Stashes that are older than `keep_ms` are deleted after each run; None keeps all.
    """

    destination: str
    schedule: Schedule
    tables: Annotated[tuple[str, ...], _OPTIONAL] = ()
    atomic: Annotated[bool, _OPTIONAL] = False
    format: Annotated[StashFormat, _OPTIONAL] = StashFormat.JSON
    only_if_requested: Annotated[bool, _OPTIONAL] = False
    keep_ms: Annotated[int | None, _OPTIONAL] = None
    exclude: Annotated[tuple[str, ...], _OPTIONAL] = ()

    @property
    def digest(self) -> str:
        """The digest of the destination, which begins the paths of its stashes' records."""
        return destination_digest(self.destination)

    def make_request(self, requests: tuple[str, ...] = ()) -> StashRequest:
        """Returns what a due stash copies. `requests` are the ids of those that it fulfils."""
        return StashRequest(
            self.destination,
            self.tables,
            self.atomic,
            format=self.format,
            trigger=Trigger.SCHEDULE,
            submitted=True,
            requests=requests,
            exclude=self.exclude,
        )


@dataclass(frozen=True, slots=True)
class MissedStart:
    """A due time of a schedule that passed minutes ago without a start, and the reason."""

    schedule: StashSchedule
    due_ms: int
    reason: str

    def describe(self) -> str:
        return (
            f"stash {root_name(self.due_ms)} of {self.schedule.destination} has not started: "
            f"{self.reason}"
        )


_NO_WORKER = (
    "nothing has started it (expected `sleeper run`, or on AWS the function of stashes, to run)"
)
_CODEC = JsonCodec(StashSchedule, camel_case)


@dataclass(frozen=True, slots=True)
class ScheduleStore:
    """The schedules below an instance's root. Every change is atomic and durable on return."""

    root: DataRoot

    def put(self, schedule: StashSchedule) -> None:
        """Stores a schedule, in place of the destination's earlier one."""
        content = f"{_CODEC.format(schedule)}\n".encode()
        self.root.put(_path(schedule.digest, _ENDING), content)

    def get(self, digest: str) -> StashSchedule | None:
        """Returns the schedule of a destination; None if it has none."""
        path = _path(digest, _ENDING)
        try:
            content = self.root.read(path)
        except NotFoundError:
            return None
        return _CODEC.parse(content.decode(errors="replace"), self.root.url_of(path), DataError)

    def find(self, destination: str) -> StashSchedule:
        """Returns the schedule of a destination. NotFoundError if it has none."""
        schedule = self.get(destination_digest(parse_destination(destination)))
        if schedule is None:
            raise NotFoundError(
                f"destination {destination} has no schedule (expected one of `sleeper stash "
                "schedule`)"
            )
        return schedule

    def digests(self) -> list[str]:
        """Returns the digests of all destinations that have a schedule, in order."""
        names = (each.path.rpartition("/")[2] for each in self.root.list_objects(_FOLDER))
        return sorted(name.removesuffix(_ENDING) for name in names if name.endswith(_ENDING))

    def list(self) -> Iterator[StashSchedule]:
        """Yields all schedules."""
        for digest in self.digests():
            schedule = self.get(digest)
            if schedule is not None:  # else removed meanwhile
                yield schedule

    def delete(self, digest: str) -> None:
        """Removes a schedule and what is stored with it. Idempotent."""
        endings = (_ENDING, _DUE, _PRUNED, _REASON)
        self.root.delete([_path(digest, ending) for ending in endings])

    def last_due_ms(self, digest: str) -> int | None:
        """Returns the last due time that was decided; None before the first."""
        return self._read_time(_path(digest, _DUE))

    def record_due(self, digest: str, due_ms: int) -> None:
        """Records a due time whose stash was started, or left out."""
        self.root.put(_path(digest, _DUE), str(due_ms).encode())

    def pruned_ms(self, digest: str) -> int | None:
        """Returns the due time after which old stashes were deleted last."""
        return self._read_time(_path(digest, _PRUNED))

    def record_pruned(self, digest: str, due_ms: int) -> None:
        """Records that old stashes were deleted after the stash of a due time."""
        self.root.put(_path(digest, _PRUNED), str(due_ms).encode())

    def record_reason(self, digest: str, reason: str | None) -> None:
        """Records why the stash that is due has not started, or that nothing prevents it."""
        if reason == self.reason(digest):
            return
        path = _path(digest, _REASON)
        if reason is None:
            self.root.delete([path])
        else:
            self.root.put(path, reason.encode(errors="replace"))

    def reason(self, digest: str) -> str | None:
        """Returns why the stash that is due has not started, as far as that was recorded."""
        try:
            return self.root.read(_path(digest, _REASON)).decode(errors="replace")
        except NotFoundError:
            return None

    def find_missed(self, schedule: StashSchedule, now_ms: int) -> MissedStart | None:
        """Returns the start that a schedule has missed, None if it has missed none."""
        last_ms = self.last_due_ms(schedule.digest)
        due_ms = missed_due_ms(schedule.schedule, last_ms, now_ms)
        if due_ms is None:
            return None
        return MissedStart(schedule, due_ms, self.reason(schedule.digest) or _NO_WORKER)

    def list_missed(self, now_ms: int) -> tuple[MissedStart, ...]:
        """Returns the starts that schedules have missed."""
        return tuple(filter(None, (self.find_missed(each, now_ms) for each in self.list())))

    def _read_time(self, path: str) -> int | None:
        try:
            return int(self.root.read(path))
        except NotFoundError:
            return None
        except ValueError as error:
            raise DataError(f"{self.root.url_of(path)} has no time: {error}") from error


def schedule_stash(
    instance: Instance,
    destination: str,
    expression: str = DAILY,
    tables: tuple[str, ...] = (),
    *,
    atomic: bool = False,
    stash_format: StashFormat = StashFormat.JSON,
    only_if_requested: bool = False,
    keep: str | None = None,
    exclude: tuple[str, ...] = (),
) -> StashSchedule:
    """Sets the schedule of a destination, in place of an earlier one, and returns it.

    It begins now, unless the expression stays the same. InvalidRequestError if the expression, the
    destination or the age to keep is invalid, or the instance has no workers for stashes;
    NotFoundError for an unknown table.
    """
    check_workers(instance, destination)
    schedule = make_schedule(expression, instance.clock())
    keep_ms = None if keep is None else parse_age(keep)
    made = StashSchedule(
        destination, schedule, tables, atomic, stash_format, only_if_requested, keep_ms, exclude
    )
    # A table that does not exist is refused, as for a command.
    request, _ = check_request(instance, replace(made.make_request(), trigger=Trigger.COMMAND))
    made = replace(
        made,
        destination=request.destination,
        tables=request.tables,
        exclude=request.exclude,
    )
    store = ScheduleStore(instance.storage.root)
    earlier = store.get(made.digest)
    if earlier is not None and earlier.schedule.expression == schedule.expression:
        # A command that is repeated each day must not postpone a daily stash forever.
        made = replace(made, schedule=earlier.schedule)
    store.put(made)
    return made


def _path(digest: str, ending: str) -> str:
    return f"{_FOLDER}/{digest}{ending}"
