"""Problems of an instance: whatever is overdue, failing, lagging or dead."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from sleeper.errors import SleeperError


class ProblemState(StrEnum):
    """The state of what has a problem, the worst first.

    - DEAD: a message, an export or a process that nothing repeats by itself.
    - FAILING: the last attempt failed.
    - OVERDUE: it should have started or ended by now.
    - LAGGING: it runs, but does not keep up.
    """

    DEAD = "dead"
    FAILING = "failing"
    OVERDUE = "overdue"
    LAGGING = "lagging"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of something of a `kind`, such as `queue`, with its name, since when, and why."""

    state: ProblemState
    kind: str
    name: str
    reason: str
    since_ms: int | None = None


def check_each(
    kind: str, names: Iterable[str], check: Callable[[str], Iterable[Problem]]
) -> Iterator[Problem]:
    """Yields the problems that a check finds by name. If the check fails, that is the problem."""
    for name in names:
        try:
            yield from check(name)
        except SleeperError as error:
            yield Problem(ProblemState.FAILING, kind, name, str(error))
