"""The progress of `sleeper run`."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The progress of a run of background work.

    `waiting` and `running` count jobs by queue, and `exports` those that wait in export queues.
    `idle` is true if no work is left. `problems` has the last 20 distinct warnings, as text.
    """

    waiting: dict[str, int] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    exports: int = 0
    workers: int = 0
    workers_died: int = 0
    compactions_created: int = 0
    splits_sent: int = 0
    files_collected: int = 0
    seconds: float = 0.0
    idle: bool = False
    problems: tuple[str, ...] = ()


Listener = Callable[[RunStatus], None]
