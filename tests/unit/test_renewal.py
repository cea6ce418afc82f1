"""Periodic renewal: period, errors and end."""

import threading

from sleeper.errors import StateMovedOnError, UnavailableError
from sleeper.renewal import Renewal

WAIT_SECONDS = 10.0


class Action:
    """Raises the errors, one per call, and reports when it was called `calls_min` times."""

    def __init__(self, calls_min: int, *errors: Exception) -> None:
        self.calls = 0
        self.calls_min = calls_min
        self.errors = list(errors)
        self.done = threading.Event()

    def __call__(self) -> None:
        self.calls += 1
        if self.calls >= self.calls_min:
            self.done.set()
        if self.errors:
            raise self.errors.pop(0)


def test_the_action_is_repeated_until_the_block_ends() -> None:
    action = Action(3)
    with Renewal("test", action, 0.001) as renewal:
        assert action.done.wait(WAIT_SECONDS)
    assert not renewal._thread.is_alive()
    assert renewal.error is None


def test_a_failed_action_is_repeated() -> None:
    action = Action(2, UnavailableError("busy"))
    with Renewal("test", action, 0.001, ends_on=StateMovedOnError) as renewal:
        assert action.done.wait(WAIT_SECONDS)
    assert renewal.error is None


def test_an_error_that_ends_the_renewal_is_kept() -> None:
    action = Action(2, UnavailableError("busy"), StateMovedOnError("gone"))
    with Renewal("test", action, 0.001, ends_on=StateMovedOnError) as renewal:
        renewal._thread.join(WAIT_SECONDS)
    assert action.calls == 2
    assert isinstance(renewal.error, StateMovedOnError)


def test_the_first_wait_and_the_period_are_separate() -> None:
    periods = iter([0.001, 60.0])
    action = Action(2)
    with Renewal("test", action, lambda: next(periods), first_seconds=0.0):
        assert action.done.wait(WAIT_SECONDS)
    assert action.calls == 2


def test_a_cancelled_renewal_ends_without_a_call() -> None:
    action = Action(1)
    renewal = Renewal("test", action, 60.0)
    renewal.start()
    renewal.cancel()
    renewal._thread.join(WAIT_SECONDS)
    assert not renewal._thread.is_alive()
    assert action.calls == 0
