"""Problems of an instance: whatever is overdue, failing, lagging or dead."""

from dataclasses import dataclass
from enum import StrEnum


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
