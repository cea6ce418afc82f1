"""A launcher of tasks that are only counted."""

from dataclasses import dataclass

from sleeper.jobs.tracker import Launch


@dataclass
class FakeLauncher:
    """Has room for so many tasks."""

    room: int = 1000
    tasks: int = 0

    def running(self) -> int:
        return self.tasks

    def start(self, count: int) -> Launch:
        start_count = min(count, self.room - self.tasks)
        self.tasks += start_count
        return Launch(start_count, () if start_count == count else ("RESOURCE:CPU",))

    def end(self) -> None:
        self.tasks -= 1
