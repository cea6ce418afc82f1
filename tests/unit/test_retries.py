"""Retries: attempts, waits and errors."""

import itertools

import pytest

from sleeper.errors import ConflictError, StateMovedOnError, UnavailableError
from sleeper.retries import RETRY_VARIABLE, Backoff, retry


class Failing:
    """Raises the errors, one per call, then returns the number of calls."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.calls


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []
    monkeypatch.setattr("sleeper.retries.sleep", waits.append)
    return waits


def test_an_action_is_repeated_until_it_succeeds(waits: list[float]) -> None:
    retried: list[str] = []
    action = Failing(ConflictError("a"), UnavailableError("b"))
    result = retry(
        action,
        on=(ConflictError, UnavailableError),
        backoff=Backoff(5, seconds_first=1, jitter=0),
        on_retry=lambda error, wait_seconds: retried.append(f"{error} {wait_seconds:g}"),
    )
    assert result == 3
    assert waits == [1, 2]
    assert retried == ["a 1", "b 2"]


def test_the_error_of_the_last_attempt_is_raised(waits: list[float]) -> None:
    action = Failing(*(ConflictError(f"{number}") for number in range(9)))
    with pytest.raises(ConflictError, match=r"^2$"):
        retry(action, on=ConflictError, backoff=Backoff(retries=2))
    assert (action.calls, waits) == (3, [0, 0])


def test_other_errors_are_raised_at_once(waits: list[float]) -> None:
    class RefusedError(ConflictError):
        pass

    for error in (UnavailableError("a"), RefusedError("b")):
        action = Failing(error)
        with pytest.raises(type(error)):
            retry(action, on=ConflictError, unless=RefusedError, backoff=Backoff(3))
        assert action.calls == 1
    assert waits == []


def test_waits_double_up_to_their_maximum_and_end_after_their_total() -> None:
    waits = Backoff(seconds_first=1, seconds_max=5, jitter=0).waits_seconds()
    assert list(itertools.islice(waits, 5)) == [1, 2, 4, 5, 5]
    total = Backoff(seconds_first=1, seconds_max=5, jitter=0, seconds_total=12)
    assert list(total.waits_seconds()) == [1, 2, 4, 5]


def test_jitter_shortens_waits() -> None:
    half = list(Backoff(100, seconds_first=10, seconds_max=10, jitter=0.5).waits_seconds())
    assert 5 <= min(half) < 7 < 8 < max(half) <= 10
    all_rows = list(Backoff(100, seconds_first=10, seconds_max=10).waits_seconds())
    assert 0 <= min(all_rows) < 3 < 7 < max(all_rows) <= 10


def test_waits_of_requests_take_the_time_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RETRY_VARIABLE, "90")
    backoff = Backoff.for_requests(0.05, 10)
    assert (backoff.retries, backoff.seconds_first, backoff.seconds_max) == (25, 0.05, 10)


def test_an_action_without_retries_runs_once(waits: list[float]) -> None:
    with pytest.raises(StateMovedOnError):
        retry(Failing(StateMovedOnError("a")), on=StateMovedOnError, backoff=Backoff(0))
    assert waits == []
