"""Calls that are answered together, of which several give up at once."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.query.result import TimeLimit
from sleeper.query.sharing import CallSharing

WAIT_SECONDS = 30


@dataclass(frozen=True)
class Interrupted(TimeLimit):
    """A limit that is exceeded at the first check, after an action."""

    before: Callable[[], object] = lambda: None

    @property
    def seconds_until_check(self) -> float:
        return 0.001

    def check(self) -> None:
        self.before()
        raise InvalidRequestError("the limit is exceeded")


class Calls:
    """Threads whose calls run alone, once they may, or wait for two that run."""

    def __init__(self) -> None:
        self._sharing = CallSharing()
        self._threads = ThreadPoolExecutor(20)
        self._may_run = threading.Event()
        self._first = [self.ask("first") for _ in range(2)]

    def ask(self, question: str, limit: TimeLimit | None = None) -> Future[str]:
        """Starts a call, and returns when it runs or waits."""
        before = self._count()
        chosen = limit or TimeLimit.from_now(WAIT_SECONDS)
        asked = self._threads.submit(self._run, question, chosen)
        turn = threading.Event()
        while self._count() == before and not asked.done():
            turn.wait(0.001)
        return asked

    def let_run(self) -> None:
        """Ends the calls that run."""
        self._may_run.set()
        for each in self._first:
            each.result(WAIT_SECONDS)

    def _run(self, question: str, limit: TimeLimit) -> str:
        def alone() -> str:
            assert self._may_run.wait(WAIT_SECONDS)
            return question

        return self._sharing.run("group", question, limit, alone, lambda questions: questions)

    def _count(self) -> int:
        groups = list(self._sharing._groups.values())
        return sum(len(group.waiting) + sum(group.running) for group in groups)


def test_a_group_goes_on_if_all_calls_give_up_that_were_chosen_for_a_run() -> None:
    calls = Calls()
    all_wait, is_chosen = threading.Event(), threading.Event()

    def give_up_last() -> None:
        all_wait.wait(WAIT_SECONDS)
        # The end of the calls that run makes this one run for the others.
        calls.let_run()
        is_chosen.set()
        assert all(each.exception(WAIT_SECONDS) for each in others)

    last = calls.ask("last", Interrupted(before=give_up_last))
    # Beside a run of fewer calls, there would be room for another one.
    others = [
        calls.ask(f"other {n}", Interrupted(before=lambda: is_chosen.wait(WAIT_SECONDS)))
        for n in range(5)
    ]
    all_wait.set()
    with pytest.raises(InvalidRequestError, match="exceeded"):
        last.result(WAIT_SECONDS)
    assert calls.ask("later").result(WAIT_SECONDS) == "later"
