"""A world with faults that tests choose, at a time that they pass."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from simulation.calls import Call, Fault
from simulation.scheduling.scheduler import Killed
from simulation.services.world import Services
from tests.clock import START_MS

T = TypeVar("T")


@dataclass
class World:
    """Implements `simulation.calls.Calls`. The next call has the first of `faults`, if any,
    or that of `fail`.

    `chosen` decides about what AWS leaves open, by probability. `watch` gets each call after its
    effect and before its response.
    """

    now: int = START_MS
    faults: list[Fault] = field(default_factory=list)
    chosen: Callable[[float], bool] = lambda _probability: False
    made: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    fail: Callable[[Call], Fault | None] = lambda _call: None
    folder: Path = Path()
    watch: Callable[[Call], object] = lambda _call: None

    ends: int | None = None

    def __call__(
        self, call: Call, effect: Callable[[], T], error: Callable[[Fault], Exception]
    ) -> T:
        self.made.append(str(call))
        if self.ends is not None and self.now >= self.ends:
            raise Killed(str(call))
        fault = self.faults.pop(0) if self.faults else self.fail(call)
        if fault is not None and fault is not Fault.LOST:
            raise error(fault)
        result = effect()
        self.watch(call)
        if fault is not None:
            raise error(fault)
        return result

    def now_ms(self) -> int:
        return self.now

    def choose(self, probability: float) -> bool:
        return self.chosen(probability)

    def pass_seconds(self, seconds: float) -> None:
        """Passes time, as a wait does."""
        self.waits.append(seconds)
        self.now += int(seconds * 1000)

    @contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """Ends the process of the block at a call that is later than so many seconds."""
        self.ends = self.now + int(seconds * 1000)
        try:
            yield
        finally:
            self.ends = None

    def services(self, folder: Path | None = None) -> Services:
        """Returns services in this world, with objects in a folder."""
        return Services(self, self.pass_seconds, folder)


def dynamo_table(client: Any, name: str = "table") -> str:
    """Creates a table with the keys `k` and `s` and an index by `kind` and `at`."""
    types = {"k": "S", "s": "S", "kind": "S", "at": "N"}
    client.create_table(
        TableName=name,
        KeySchema=[
            {"AttributeName": "k", "KeyType": "HASH"},
            {"AttributeName": "s", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[{"AttributeName": n, "AttributeType": t} for n, t in types.items()],
        BillingMode="PAY_PER_REQUEST",
        GlobalSecondaryIndexes=[
            {
                "IndexName": "recent",
                "KeySchema": [
                    {"AttributeName": "kind", "KeyType": "HASH"},
                    {"AttributeName": "at", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
    )
    return name
