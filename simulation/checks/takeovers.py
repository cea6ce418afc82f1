"""The rule that a live process keeps what it holds, and gives it back when it is done.

A message in flight is held until it is deleted or returned, and the claim on a bucket of an export
queue until it is released. The holder renews both. So another holder gets it only after the process
died, or after a fault of its calls, which may have hindered a renewal or the return.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from simulation.checks.violation import require
from simulation.scheduling.scheduler import Process
from simulation.world import World
from sleeper.export_queue.local.store import LocalExportStore
from sleeper.local.queue import LocalQueue

# Calls of these services take, renew and return. Renewals are made beside the first thread.
_SERVICES = ("queue", "export_queue", "disk")
DEAD = "a message dies at its last receive"
_ALONE = "a live process keeps what it holds"


@dataclass(frozen=True, slots=True)
class _Hold:
    """The holder's identity for one thing, its process, and how many faults that had met before."""

    identity: str
    process: Process
    faults: int


@dataclass
class Takeovers:
    """What processes of a world hold. `problems` are the rules that were broken, and how."""

    world: World
    problems: list[tuple[str, str]] = field(default_factory=list)
    _holds: dict[str, _Hold] = field(default_factory=dict)

    def hold(self, what: str, identity: str) -> None:
        """Notes that the calling process holds something, in place of the holder before."""
        thread = self.world.scheduler.find_current()
        if thread is None:
            return
        before = self._holds.get(what)
        if before is not None and before.identity != identity and self._is_unexplained(before):
            text = f"{thread} has {what}, which {before.process.name} holds"
            self.problems.append((_ALONE, text))
        self._holds[what] = _Hold(identity, thread.process, self._count_faults(thread.process))

    def give_back(self, identity: str) -> None:
        """Notes that the holder has given back what it held under the identity."""
        for what in [each for each, hold in self._holds.items() if hold.identity == identity]:
            del self._holds[what]

    def check(self) -> None:
        """Raises `Violation` if a rule was broken."""
        for rule, text in self.problems:
            require(False, rule, text)

    def _is_unexplained(self, hold: _Hold) -> bool:
        return not hold.process.is_dead and self._count_faults(hold.process) == hold.faults

    def _count_faults(self, process: Process) -> int:
        """Counts the faults that may keep a process from a renewal or the return."""
        met = self.world.count_met_at(process, _SERVICES)
        return met + self.world.count_met(process).beside


@contextmanager
def observed_holds(takeovers: Takeovers) -> Iterator[None]:
    """Notes in the block what local queues and export queues give to processes."""
    with ExitStack() as stack:
        for owner, name, observe in _observers(takeovers):
            real = getattr(owner, name)
            stack.enter_context(patch.object(owner, name, _observed(real, observe)))
        yield


def _observed(real: Callable[..., Any], observe: Callable[..., None]) -> Callable[..., Any]:
    def call(*arguments: Any, **more: Any) -> Any:
        result = real(*arguments, **more)
        observe(result, *arguments)
        return result

    return call


def _observers(takeovers: Takeovers) -> Iterator[tuple[type, str, Callable[..., None]]]:
    def received(messages: Any, queue: LocalQueue, *_: Any) -> None:
        for message in messages:
            what = f"message {message.message_id} of {queue.name}"
            takeovers.hold(what, message.receipt)
            if message.receives > queue.settings.receives_max:
                text = f"{what} is received {message.receives} times"
                takeovers.problems.append((DEAD, text))

    def returned(_: Any, _queue: LocalQueue, receipt: str, *_more: Any) -> None:
        takeovers.give_back(receipt)

    def claimed(is_claimed: bool, _: Any, queue: str, bucket: int, owner: str, *_more: Any) -> None:
        if is_claimed:
            takeovers.hold(f"bucket {bucket} of {queue}", f"{owner} {bucket}")

    def released(_: Any, _store: Any, _queue: str, bucket: int, owner: str, *_more: Any) -> None:
        takeovers.give_back(f"{owner} {bucket}")

    yield LocalQueue, "receive", received
    yield LocalQueue, "delete", returned
    yield LocalQueue, "release", returned
    yield LocalExportStore, "claim", claimed
    yield LocalExportStore, "release", released
    yield LocalExportStore, "record_failure", released
