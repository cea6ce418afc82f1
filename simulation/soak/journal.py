"""The journal of a soak: a JSON line for each operation, fault and problem, and their counts."""

import json
import threading
import time
from collections import Counter, deque
from pathlib import Path

_LAST_FAULTS = 12


class Journal:
    """Records what happens, with seconds since the start. It is safe for threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.operations: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.problems: list[str] = []
        self.last_faults: deque[str] = deque(maxlen=_LAST_FAULTS)
        self.rows_checked = 0
        self._file = path.open("a")
        self._start = time.monotonic()
        self._lock = threading.Lock()

    def record(self, event: str, **members: object) -> None:
        """Adds a line."""
        seconds = round(time.monotonic() - self._start, 3)
        line = json.dumps({"seconds": seconds, "event": event, **members}, default=str)
        with self._lock:
            print(line, file=self._file, flush=True)

    def operation(self, kind: str, outcome: str, **members: object) -> None:
        """Records the end of an operation."""
        with self._lock:
            self.operations[kind] += 1
            self.outcomes[outcome] += 1
        self.record("operation", kind=kind, outcome=outcome, **members)

    def fault(self, kind: str, target: str, **members: object) -> None:
        """Records a fault."""
        with self._lock:
            self.faults[f"{kind} {target}"] += 1
            seconds = time.monotonic() - self._start
            self.last_faults.append(f"{seconds:.1f} s: {kind} {target} {members or ''}".rstrip())
        self.record("fault", kind=kind, target=target, **members)

    def problem(self, text: str) -> None:
        """Records a difference from the model, or a lack of progress."""
        with self._lock:
            self.problems.append(text)
        self.record("problem", text=text)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
