"""Damage of stored objects: a data file, key file or sidecar is cut short, or some bytes change.

A *strike* damages one object, as a bad sector does, or a copy that was torn. Later it is repaired:
the true bytes are restored, as from a backup. A read may fail meanwhile, with an error that names
the object, but it never returns other rows; and after the repair all rows are there. A strike and a
repair end all processes, because each verifies a file once and detects no later damage.
"""

from random import Random

from simulation.calls import Call
from simulation.faults import CHANGED, TRUNCATED, Point
from simulation.instances import SimulatedInstance
from simulation.world import World

_STORAGE = "storage"
_BYTES_CHANGED_MAX = 16
_OBJECTS_MAX = 3
_REPAIR_PROBABILITY = 0.2
# Processes that are ended all the time would do nothing.
_LINES_BETWEEN_CHANGES = 250


class Damage:
    """What is damaged in a history."""

    def __init__(self, world: World, instance: SimulatedInstance) -> None:
        self._world, self._instance = world, instance
        self._random = Random(f"{world.seed} damage")
        self._true: dict[str, bytes] = {}
        self._struck: set[str] = set()
        self._looks = self._changed_at = 0

    def look(self) -> None:
        """Damages an object, or repairs all that are damaged, or does nothing."""
        if self._world.trace.count < self._changed_at + _LINES_BETWEEN_CHANGES:
            return
        if self._true and self._random.random() < _REPAIR_PROBABILITY:
            self.repair()
            return
        self._looks += 1
        details = Random(f"{self._world.seed} damage {self._looks}")
        paths = [each for each in self._instance.list_data() if each not in self._true]
        if not paths or len(self._true) >= _OBJECTS_MAX:
            return
        path = details.choice(paths)
        call = Call(_STORAGE, _kind_of(path), path)
        point = Point(_STORAGE, call, f"damage {self._looks}")
        for kind in (TRUNCATED, CHANGED):
            content = self._instance.read_data(path)
            if content and self._world.faults.happens(kind, point):
                self._strike(path, content, kind, details)
                return

    def repair(self) -> None:
        """Restores what is damaged, of what still exists."""
        if self._true:
            self._stop_all()
        for path, content in self._true.items():
            if self._instance.read_data(path) is not None:
                self._note(f"{path} is repaired")
                self._instance.write_data(path, content)
        self._true.clear()

    def explains(self, error: str) -> bool:
        """Returns whether an error names an object that was ever damaged."""
        return any(name in error for name in sorted(self._struck))

    def _strike(self, path: str, content: bytes, kind: str, details: Random) -> None:
        self._stop_all()
        self._note(f"{path} ! {kind}")
        self._true[path] = content
        self._struck.add(path.rpartition("/")[2].partition(".")[0])
        change = _truncated if kind == TRUNCATED else _changed
        self._instance.write_data(path, change(content, details))

    def _stop_all(self) -> None:
        self._instance.stop_all()
        self._changed_at = self._world.trace.count

    def _note(self, text: str) -> None:
        self._world.note(self._world.scheduler.current, text)


def _kind_of(path: str) -> str:
    """Returns the kind of an object as coverage names it."""
    folder, _, name = path.rpartition("/")
    suffix = name.partition(".")[2]
    return f"{'key file' if folder.endswith('deletes') else 'data file'} {suffix}"


def _truncated(content: bytes, random: Random) -> bytes:
    return content[: random.choice((0, random.randrange(len(content)), len(content) - 1))]


def _changed(content: bytes, random: Random) -> bytes:
    start = random.randrange(len(content))
    end = min(start + random.randint(1, _BYTES_CHANGED_MAX), len(content))
    changed = bytes(each ^ random.randint(1, 255) for each in content[start:end])
    return content[:start] + changed + content[end:]
