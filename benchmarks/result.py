"""What a benchmark found."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


class CheckFailedError(Exception):
    """What a run made is not what it should have made; its figures mean nothing."""


def check(is_true: bool, message: str) -> None:
    """CheckFailedError with the message, unless it is true."""
    if not is_true:
        raise CheckFailedError(message)


@dataclass(frozen=True, slots=True)
class Aim:
    """What a figure should be: at least, or at most, so much."""

    bound: float
    is_most: bool = False

    def is_met(self, value: float) -> bool:
        return value <= self.bound if self.is_most else value >= self.bound

    def share(self, value: float) -> float:
        """How far the aim is reached: 1 is just reached, 2 is twice as good."""
        best, worst = (self.bound, value) if self.is_most else (value, self.bound)
        return best / worst if worst else float("inf")


@dataclass(frozen=True, slots=True)
class Figure:
    """A median of some runs, with the least and the greatest of them."""

    what: str
    value: float
    unit: str
    low: float
    high: float
    aim: Aim | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one benchmark. `work` says what was done, how often and with what."""

    name: str
    work: str
    figures: tuple[Figure, ...]


def figure(
    what: str, runs: Sequence[float], unit: str, aim: Aim | None = None, note: str = ""
) -> Figure:
    """The median of the runs."""
    return Figure(what, median(runs), unit, min(runs), max(runs), aim, note)


def ratios(ours: Sequence[float], anchor: Sequence[float]) -> list[float]:
    """Ours over the anchor, run by run: each pair ran within the same minute."""
    return [a / b for a, b in zip(ours, anchor, strict=True)]
