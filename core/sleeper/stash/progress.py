"""The progress of a stash: which tasks are recorded and done, and what they wrote."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sleeper.tables import TableId


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The rows and files that tasks wrote, and the bytes of the files."""

    rows: int = 0
    files: int = 0
    bytes: int = 0


def add_results(results: Iterable[TaskResult]) -> TaskResult:
    """Returns the sums of results."""
    rows = files = size = 0
    for each in results:
        rows, files, size = rows + each.rows, files + each.files, size + each.bytes
    return TaskResult(rows, files, size)


@dataclass(slots=True)
class TableProgress:
    """The progress of a table. `tasks` is None until all its tasks are recorded.

    With `uses_spark`, one Spark job does all of them.
    """

    tasks: int | None = None
    uses_spark: bool = False
    done: dict[int, TaskResult] = field(default_factory=dict)
    is_dropped: bool = False

    @property
    def is_planned(self) -> bool:
        return self.is_dropped or self.tasks is not None

    @property
    def is_done(self) -> bool:
        return self.is_dropped or (self.tasks is not None and len(self.done) >= self.tasks)

    @property
    def unfinished(self) -> list[int]:
        """The numbers of tasks that are recorded and not done."""
        if self.is_dropped:
            return []
        return [task for task in range(self.tasks or 0) if task not in self.done]

    @property
    def written(self) -> TaskResult:
        """The sums over all tasks that are done."""
        return add_results(self.done.values())


Progress = dict[TableId, TableProgress]
"""Tables without an entry have not been planned."""
