"""Holds in memory, for tests of states in which holds play no part."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sleeper.statestore.holds import Hold


@dataclass
class MemoryHolds:
    """Implements `sleeper.statestore.holds.HoldStore`."""

    holds: dict[str, Hold] = field(default_factory=dict)

    accepts_writes = True

    def all(self) -> Sequence[Hold]:
        return list(self.holds.values())

    def put(self, hold: Hold) -> None:
        self.holds[hold.id] = hold

    def extend(self, hold_id: str, expiry_ms: int) -> bool:
        if hold_id not in self.holds:
            return False
        self.put(replace(self.holds[hold_id], expiry_ms=expiry_ms))
        return True

    def forget(self, expiry_max_ms: int) -> None:
        self.holds = {id: h for id, h in self.holds.items() if h.expiry_ms > expiry_max_ms}

    def delete(self, hold_ids: Sequence[str]) -> None:
        for each in hold_ids:
            self.holds.pop(each, None)
