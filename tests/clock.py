"""The fake clock of all tests."""

from dataclasses import dataclass

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
DAY_MS = 24 * 3600 * 1000


@dataclass
class FakeClock:
    """Returns `now_ms`, in milliseconds since the epoch, until a test advances it."""

    now_ms: int = START_MS

    def __call__(self) -> int:
        return self.now_ms

    def pass_seconds(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)

    def pass_minutes(self, minutes: float) -> None:
        self.pass_seconds(60 * minutes)
