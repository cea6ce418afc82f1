"""Faults: which happen in a run, how often, and which have happened where.

A *profile* is drawn from the seed: most runs have a few kinds of faults, often enough to meet the
recovery from others, and some have none. A fault is named by its kind and the number of the call at
which it happened, so a replay can leave faults out.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from simulation.calls import Call, Fault

KILLED = "killed"
PAUSED = "paused"
OUTAGE = "outage"
JUMPED = "clock jumped"
POWER = "power lost"

_LATENCY_SECONDS = (0.0, 0.0001, 0.002, 0.02, 0.5)
_PAUSE_SECONDS = (5.0, 60.0, 700.0, 4000.0)
_OUTAGE_SECONDS = (5.0, 120.0, 3600.0)
_JUMP_SECONDS = (-7200.0, -30.0, 30.0, 7200.0, 172_800.0)
_RATES = (0.0005, 0.002, 0.006)
# Some faults concern every process, so they are rarer than those of one call.
_WEIGHTS = {OUTAGE: 0.1, JUMPED: 0.05, POWER: 0.1, PAUSED: 0.5, KILLED: 0.5}


@dataclass(frozen=True, slots=True)
class Profile:
    """The probability of each kind of fault at a call, and the latencies of calls."""

    rates: dict[str, float]
    latency_seconds: Sequence[float]

    @classmethod
    def draw(cls, random: Random) -> "Profile":
        """Draws the profile of a run."""
        is_calm = random.random() < 0.1
        rates = {}
        for kind in (KILLED, PAUSED, OUTAGE, JUMPED, POWER, *Fault):
            is_on, rate = random.random() < 0.6, random.choice(_RATES)
            rates[str(kind)] = rate * _WEIGHTS.get(kind, 1.0) if is_on and not is_calm else 0.0
        return cls(rates, [random.choice(_LATENCY_SECONDS) for _ in range(3)])


@dataclass
class Faults:
    """Decides which faults happen, and counts them by kind, operation and call.

    With `only`, the faults of these names happen and no others.
    """

    seed: int
    profile: Profile
    only: frozenset[tuple[int, str]] | None = None
    is_on: bool = True
    names: list[tuple[int, str]] = field(default_factory=list)
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    number: int = 0

    def __post_init__(self) -> None:
        self._decisions = Random(f"{self.seed} decisions")
        self._latencies = Random(f"{self.seed} latencies")
        self._outages: dict[str, float] = {}

    def begin_call(self, operation: str, call: Call) -> None:
        """Counts a call, at which faults may happen."""
        self.number += 1
        self.calls[operation, f"{call.service}.{call.operation}"] += 1

    def latency_seconds(self) -> float:
        """Returns how long a call takes before its effect, or after it."""
        longest = self.profile.latency_seconds[self._latencies.randrange(3)]
        return self._latencies.random() * longest if longest else 0.0

    def pause_seconds(self) -> float:
        """Returns how long a process is paused by the fault of this call."""
        return self._details().choice(_PAUSE_SECONDS) * (0.5 + self._details().random())

    def jump_seconds(self) -> float:
        """Returns how far a clock jumps by the fault of this call."""
        return self._details().choice(_JUMP_SECONDS)

    def happens(self, kind: str, operation: str, call: Call) -> bool:
        """Returns whether a fault happens at the call, and counts it."""
        is_drawn = self._decisions.random() < self.profile.rates.get(kind, 0.0)
        name = self.number, str(kind)
        if not self.is_on or not (is_drawn if self.only is None else name in self.only):
            return False
        self.names.append(name)
        self.counts[str(kind), operation, f"{call.service}.{call.operation}"] += 1
        return True

    def is_out(self, operation: str, call: Call, now: float) -> bool:
        """Returns whether the call's service is away, or begins to be."""
        if not self.is_on:
            return False
        if self.happens(OUTAGE, operation, call):
            self._outages[call.service] = now + self._details().choice(_OUTAGE_SECONDS)
        return now < self._outages.get(call.service, 0.0)

    def choose(self, probability: float) -> bool:
        """Returns a decision of a service, such as a second delivery."""
        return self.is_on and self._decisions.random() < probability

    def _details(self) -> Random:
        return Random(f"{self.seed} {self.number}")
