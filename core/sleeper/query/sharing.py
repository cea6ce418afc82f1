"""Calls of several threads that wait at the same time, answered together.

The first caller of a group runs alone at once. Callers that arrive meanwhile wait, and the first of
them then runs for all. So a lone caller waits for nobody, and under load the calls per run grow
until the runs keep up.
"""

import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sleeper.query.result import TimeLimit

logger = logging.getLogger(__name__)

Q = TypeVar("Q")
A = TypeVar("A")

# While a run of few calls waits for a store, another one can use the processor. Two runs of many
# calls would do much work twice.
_RUNS_MAX = 2
_FEW_CALLS = 4
# More would make the last caller wait for answers that others take.
_CALLS_PER_RUN_MAX = 256


@dataclass(slots=True, eq=False)
class _Call(Generic[Q, A]):
    """A call. `batch` begins with the call that runs for all calls in it; `None` for others."""

    question: Q
    wakes: threading.Event = field(default_factory=threading.Event)
    answer: A | None = None
    batch: "list[_Call[Q, A]] | None" = None
    has_given_up: bool = False


@dataclass(slots=True)
class _Group(Generic[Q, A]):
    """The calls that wait, and the number of calls of each run."""

    running: list[int] = field(default_factory=list)
    waiting: list[_Call[Q, A]] = field(default_factory=list)

    @property
    def has_room(self) -> bool:
        """Whether another run may start."""
        if not self.running:
            return True
        return len(self.running) < _RUNS_MAX and max(self.running) <= _FEW_CALLS


class CallSharing:
    """Groups of calls that can be answered together. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[Hashable, _Group[Any, Any]] = {}

    def run(
        self,
        group: Hashable,
        question: Q,
        limit: TimeLimit,
        alone: Callable[[], A],
        together: Callable[[Sequence[Q]], Sequence[A | None]],
    ) -> A:
        """Returns the answer to a question, by `together` for all calls of the group that wait.

        The caller finds its answer `alone` if nobody else waits, if the answer of `together` is
        `None`, and if `together` fails: errors reach only the caller that finds its answer alone.
        Raises `InvalidRequestError` if the caller's limit is exceeded while it waits.
        """
        call: _Call[Q, A] = _Call(question)
        batch = self._enter(group, call) or self._wait(group, call, limit)
        if batch is None:
            return alone() if call.answer is None else call.answer
        try:
            if len(batch) == 1:
                return alone()
            _answer(batch, together)
        finally:
            # First, because the next run reads while the callers take their answers.
            self._leave(group, len(batch))
            for each in batch[1:]:
                each.wakes.set()
        return alone() if call.answer is None else call.answer

    def _enter(self, group: Hashable, call: _Call[Q, A]) -> list[_Call[Q, A]] | None:
        """Returns the calls to run for at once; `None` if the call waits."""
        with self._lock:
            calls = self._groups.setdefault(group, _Group())
            if calls.has_room and not calls.waiting:
                calls.running.append(1)
                return [call]
            calls.waiting.append(call)
            return None

    def _wait(
        self, group: Hashable, call: _Call[Q, A], limit: TimeLimit
    ) -> list[_Call[Q, A]] | None:
        """Waits for the answer. Returns the calls to run for if it is this caller's turn."""
        try:
            while not call.wakes.wait(limit.seconds_until_check):
                limit.check()
        except BaseException:
            self._give_up(group, call)
            raise
        return call.batch

    def _give_up(self, group: Hashable, call: _Call[Q, A]) -> None:
        with self._lock:
            call.has_given_up = True
            calls = self._groups.get(group)
            if calls is not None and call in calls.waiting:
                calls.waiting.remove(call)
            if calls is None or call.batch is None:
                return
            size = len(call.batch)
            # Nobody would run for the calls of a caller that gave up after it was chosen, too.
            calls.waiting[:0] = [each for each in call.batch[1:] if not each.has_given_up]
        self._leave(group, size)

    def _leave(self, group: Hashable, size: int) -> None:
        """Ends a run of that size, and lets the first call that waits run for those that wait."""
        with self._lock:
            calls = self._groups[group]
            calls.running.remove(size)
            if calls.waiting and calls.has_room:
                batch = calls.waiting[:_CALLS_PER_RUN_MAX]
                del calls.waiting[:_CALLS_PER_RUN_MAX]
                calls.running.append(len(batch))
                batch[0].batch = batch
                batch[0].wakes.set()
            elif not calls.running and not calls.waiting:
                del self._groups[group]


def _answer(
    batch: Sequence[_Call[Q, A]], together: Callable[[Sequence[Q]], Sequence[A | None]]
) -> None:
    try:
        answers = together([each.question for each in batch])
    except Exception as error:
        # Each caller gets the errors of its own call.
        logger.debug("%s calls run alone: %s", len(batch), error)
        return
    for each, answer in zip(batch, answers, strict=True):
        each.answer = answer
