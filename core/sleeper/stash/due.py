"""Starts the stashes that schedules make due, and deletes old ones after them.

A function does it on AWS every minute, and `sleeper run` locally every few seconds.

The due time is the name of the stash, so all processes that find it due start the same one. A due
stash waits until another one of its destination has ended, and if more times pass meanwhile, only
the latest is made. The due time is recorded when the stash was started, or left out because nobody
had requested it. Until then, the reason is recorded beside the schedule. Old stashes are deleted
also if none can be started.
"""

import logging
from dataclasses import dataclass, field

from sleeper.errors import ConflictError, SleeperError
from sleeper.instance import Instance
from sleeper.schedule import due_run_ms
from sleeper.stash.destination import open_to_write
from sleeper.stash.layout import root_name
from sleeper.stash.prune import prune_stashes
from sleeper.stash.record import StashRecord
from sleeper.stash.requests import delete_fulfilled, delete_requests, pending_requests
from sleeper.stash.schedules import ScheduleStore, StashSchedule
from sleeper.stash.start import is_taken, start_stash

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class StartReport:
    """The stashes that were started, as `<destination>/<name>`, and errors as text.

    Then the destinations whose due stash waits, those where nobody had requested it, and the
    stashes that were deleted.
    """

    started: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    unrequested: list[str] = field(default_factory=list)
    pruned: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def start_due_stashes(instance: Instance, now_ms: int | None = None) -> StartReport:
    """Starts the due stash of each destination. An error of one does not stop the others.

    `now_ms` is by default the time of the instance's clock.
    """
    now_ms = instance.clock() if now_ms is None else now_ms
    store = ScheduleStore(instance.storage.root)
    report = StartReport()
    for digest in store.digests():
        try:
            schedule = store.get(digest)
        except SleeperError as error:
            report.problems.append(f"schedule {digest}: {error}")
            continue
        if schedule is not None:  # else removed meanwhile
            _Step(instance, store, schedule, report).run(now_ms)
    for problem in report.problems:
        logger.warning("could not start or prune %s", problem)
    return report


@dataclass(frozen=True, slots=True)
class _Step:
    instance: Instance
    store: ScheduleStore
    schedule: StashSchedule
    report: StartReport

    def run(self, now_ms: int) -> None:
        """Starts the stash that is due and deletes old ones, each also if the other fails."""
        has_failed = False
        try:
            reason = self._start(now_ms)
        except SleeperError as error:
            reason, has_failed = str(error), True
            self._add_problem(error)
        try:
            self.store.record_reason(self.schedule.digest, reason)
            self._prune(now_ms, has_failed)
        except SleeperError as error:
            self._add_problem(error)

    def _add_problem(self, error: SleeperError) -> None:
        self.report.problems.append(f"stash of {self.schedule.destination}: {error}")

    def _start(self, now_ms: int) -> str | None:
        """Starts the stash that is due, if there is one, and records its due time.

        Returns why it waits.
        """
        schedule, digest = self.schedule, self.schedule.digest
        due_ms = due_run_ms(schedule.schedule, self.store.last_due_ms(digest), now_ms)
        if due_ms is None:
            return None
        name = root_name(due_ms)
        if not self._has_record(name) and (reason := self._decide(name)) is not None:
            return reason
        if self._has_record(name):
            # The record tells which requests count, also if another process started the stash.
            record = StashRecord(self.store.root, digest, name)
            delete_requests(self.store.root, digest, record.request.requests)
            self.report.started.append(f"{schedule.destination}/{name}")
        delete_fulfilled(self.store.root, digest)
        self.store.record_due(digest, due_ms)
        return None

    def _decide(self, name: str) -> str | None:
        """Starts a stash, or leaves it out. Returns why it waits."""
        schedule = self.schedule
        requests = pending_requests(self.store.root, schedule.digest)
        if schedule.only_if_requested and not requests:
            logger.info("nobody requested stash %s of %s", name, schedule.destination)
            self.report.unrequested.append(schedule.destination)
            return None
        request = schedule.make_request(tuple(each.id for each in requests))
        try:
            start_stash(self.instance, request, name)
        except ConflictError as error:
            destination = open_to_write(schedule.destination, self.instance.storage.root)
            # In this order: a stash of this instance has a record before it has a root.
            is_another = is_taken(destination, name)
            if self._has_record(name):
                return None
            if is_another:
                self.report.problems.append(
                    f"stash {name} of {schedule.destination}: another instance made one of that "
                    "name (expected a schedule with other times)"
                )
                return None
            logger.info("stash %s of %s waits: %s", name, schedule.destination, error)
            self.report.waiting.append(schedule.destination)
            return f"it waits: {error}"
        return None

    def _has_record(self, name: str) -> bool:
        # A new object, because a record remembers what it has read.
        return StashRecord(self.store.root, self.schedule.digest, name).is_claimed()

    def _prune(self, now_ms: int, has_failed: bool) -> None:
        """Deletes old stashes, once after each due time, when its stash has ended or failed."""
        schedule, digest = self.schedule, self.schedule.digest
        due_ms = self.store.last_due_ms(digest)
        if has_failed:
            due_ms = due_run_ms(schedule.schedule, due_ms, now_ms) or due_ms
        if schedule.keep_ms is None or due_ms in (None, self.store.pruned_ms(digest)):
            return
        if StashRecord(self.store.root, digest, root_name(due_ms)).is_running():
            return
        pruning = prune_stashes(self.instance, schedule.destination, schedule.keep_ms)
        self.report.pruned += [f"{schedule.destination}/{each.name}" for each in pruning.pruned]
        self.report.problems += pruning.problems
        self.store.record_pruned(digest, due_ms)
