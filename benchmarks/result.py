"""The results of a benchmark."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

OURS = "Sleeper"


class CheckFailedError(Exception):
    """A run returned a wrong result, so its figures have no meaning."""


def check(is_true: bool, message: str) -> None:
    """CheckFailedError with the message, unless it is true."""
    if not is_true:
        raise CheckFailedError(message)


@dataclass(frozen=True, slots=True)
class Aim:
    """The least or greatest acceptable value of a figure."""

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
class Comparison:
    """One job, with the time or rate of each competitor by name."""

    job: str
    figures: tuple[Figure, ...]
    less_is_better: bool = True

    @property
    def best(self) -> Figure:
        choose = min if self.less_is_better else max
        return choose(self.figures, key=lambda figure: figure.value)


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one benchmark. `work` describes the job and its data.

    `notes` describe differences between the competitors' jobs.
    """

    name: str
    work: str
    figures: tuple[Figure, ...]
    comparisons: tuple[Comparison, ...] = ()
    notes: tuple[str, ...] = ()


def figure(
    what: str, runs: Sequence[float], unit: str, aim: Aim | None = None, note: str = ""
) -> Figure:
    """The median of the runs."""
    return Figure(what, median(runs), unit, min(runs), max(runs), aim, note)


def number(value: float) -> str:
    """Formats a number with three significant digits, or as an integer."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def ratios(ours: Sequence[float], anchor: Sequence[float]) -> list[float]:
    """Ours over the anchor, run by run: each pair ran within the same minute."""
    return [a / b for a, b in zip(ours, anchor, strict=True)]


def comparison(
    job: str, runs: Mapping[str, Sequence[float]], unit: str, less_is_better: bool = True
) -> Comparison:
    """The medians of everyone's runs."""
    figures = tuple(figure(who, results, unit) for who, results in runs.items())
    return Comparison(job, figures, less_is_better)


def of_the_best(
    runs: Mapping[str, Sequence[float]], ours: str, others: Collection[str], less_is_better: bool
) -> list[float]:
    """How many times as good ours is as the best of the others, turn by turn."""
    if less_is_better:
        best = [min(turn) for turn in zip(*(runs[who] for who in others), strict=True)]
        return ratios(best, runs[ours])
    best = [max(turn) for turn in zip(*(runs[who] for who in others), strict=True)]
    return ratios(runs[ours], best)
