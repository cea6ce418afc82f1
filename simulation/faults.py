"""Faults: which happen in a run, how often, and which have happened where.

A *profile* is drawn from the seed: most runs have a few kinds of faults, often enough to meet the
recovery from others, and some have none. A fault is named by its kind and its call: the step or the
process that made it, the operation of the service, and how many of these calls there were before.
So a replay can leave out faults and steps, and the others happen where they did.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from simulation.calls import Call, Fault

KILLED = "killed"
PAUSED = "paused"
OUTAGE = "outage"
JUMPED = "clock jumped"
POWER = "power lost"
LATE = "answered late"
KINDS = (KILLED, PAUSED, LATE, OUTAGE, JUMPED, POWER, *map(str, Fault))
TRUNCATED = "truncated"
CHANGED = "bytes changed"
DAMAGES = (TRUNCATED, CHANGED)

_LATENCY_SECONDS = (0.0, 0.0001, 0.002, 0.02, 0.5)
# Some calls take long, so that operations of other processes fall between two calls of one.
_SLOW_SECONDS = (0.0, 0.0, 4.0, 30.0)
_SLOW_PROBABILITY = 0.08
_PAUSE_SECONDS = (5.0, 60.0, 700.0, 4000.0)
_OUTAGE_SECONDS = (5.0, 120.0, 3600.0)
_LATE_SECONDS = (30.0, 200.0, 1500.0)
_JUMP_SECONDS = (-7200.0, -30.0, 30.0, 7200.0, 100_000.0, 172_800.0)
_RATES = (0.0005, 0.002, 0.006)
# Polls are most of the calls, so a profile may have more faults at the calls of one service.
# Each has a port of a local instance, and the services of AWS that its adapter uses.
_FOCUSED = (
    (),
    (),
    ("root", "s3"),
    ("state", "dynamodb"),
    ("queue", "sqs"),
    ("tracker", "ecs", "events", "receiver"),
)
_FOCUS_WEIGHT = 8.0
# A profile may multiply the rate of an operation's first call of a kind by so much, of its second
# call by half of it, and so on. Calls that are rare in a history would meet no fault otherwise.
_FIRST_CALLS = (1, 6, 20, 60)
_FIRST_RATE_MAX = 0.06
_FOCUS_RATE, _FOCUS_FIRST_CALLS = 0.006, 20
# Some faults concern every process, so they are rarer than those of one call.
_SHARED = (OUTAGE, JUMPED, POWER, *DAMAGES)
_WEIGHTS = {OUTAGE: 0.1, JUMPED: 0.5, POWER: 0.1, PAUSED: 0.5, KILLED: 0.5}


# Of histories, and of looks at an object at rest.
_DAMAGE_PROBABILITY = 0.25
_DAMAGE_RATE = 0.3


@dataclass(frozen=True, slots=True)
class Profile:
    """The probability of each kind of fault at a call, and the latencies of calls.

    Faults of one call are more frequent at the calls of the services that are `focused`, and at the
    `first_calls` of an operation, the earlier the more. A few calls take up to `slow_seconds`.
    """

    rates: dict[str, float]
    latency_seconds: Sequence[float]
    focused: Sequence[str] = ()
    first_calls: int = 1
    slow_seconds: float = 0.0

    @classmethod
    def draw(cls, random: Random, focus: Collection[str] = ()) -> "Profile":
        """Draws the profile of a run. Kinds of faults in the focus happen in it for certain."""
        is_calm = random.random() < 0.1
        rates = {}
        for kind in KINDS:
            is_on, rate = random.random() < 0.6, random.choice(_RATES)
            rates[kind] = rate * _WEIGHTS.get(kind, 1.0) if is_on and not is_calm else 0.0
            if kind in focus:
                rates[kind] = _FOCUS_RATE
        has_damage = not is_calm and random.random() < _DAMAGE_PROBABILITY
        for kind in DAMAGES:
            rates[kind] = _DAMAGE_RATE if has_damage or kind in focus else 0.0
        latencies = [random.choice(_LATENCY_SECONDS) for _ in range(3)]
        focused, first_calls = random.choice(_FOCUSED), random.choice(_FIRST_CALLS)
        if not set(KINDS).isdisjoint(focus):
            first_calls = max(first_calls, _FOCUS_FIRST_CALLS)
        return cls(rates, latencies, focused, first_calls, random.choice(_SLOW_SECONDS))

    @property
    def has_damage(self) -> bool:
        """Whether stored objects may be damaged."""
        return any(self.rates.get(kind, 0.0) > 0 for kind in DAMAGES)

    def rate(self, kind: str, call: Call, number: int) -> float:
        """Returns the probability of a fault at the operation's call of this number, from 1."""
        rate = self.rates.get(kind, 0.0)
        if kind in _SHARED:
            return rate
        focused = rate * _FOCUS_WEIGHT if call.service in self.focused else rate
        return max(focused, min(_FIRST_RATE_MAX, rate * self.first_calls / number))


@dataclass(frozen=True, slots=True)
class Point:
    """A call in the history: the operation that made it, and the name of the call.

    `number` is how often the operation has made the call, whatever its target, with this one.
    """

    operation: str
    call: Call
    name: str
    number: int = 1


class MetFaults(NamedTuple):
    """How many faults a process has met: all its threads, and those beside the first one.

    The latter renew leases and holds. Calls that take long count too.
    """

    all: int
    beside: int


@dataclass
class Faults:
    """Decides which faults happen, and counts them by kind, operation and call.

    With `only`, the faults of these names happen and no others.
    """

    seed: int
    profile: Profile
    only: frozenset[tuple[str, str]] | None = None
    is_on: bool = True
    names: list[tuple[str, str]] = field(default_factory=list)
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    number: int = 0

    def __post_init__(self) -> None:
        self._decisions = Random(f"{self.seed} decisions")
        self._latencies = Random(f"{self.seed} latencies")
        self._outages: dict[str, float] = {}
        self._named: Counter[str] = Counter()

    def begin_call(self, operation: str, call: Call, who: str) -> Point:
        """Counts a call of a step or process, at which faults may happen."""
        self.number += 1
        pair = operation, f"{call.service}.{call.operation}"
        self.calls[pair] += 1
        name = f"{who} {call.service}.{call.operation}"
        self._named[name] += 1
        return Point(operation, call, f"{name} {self._named[name]}", self.calls[pair])

    def latency_seconds(self) -> float:
        """Returns how long a call takes before its effect, or after it."""
        longest = self.profile.latency_seconds[self._latencies.randrange(3)]
        is_slow = self.profile.slow_seconds > longest and self.is_on
        if is_slow and self._latencies.random() < _SLOW_PROBABILITY:
            longest = self.profile.slow_seconds
        return self._latencies.random() * longest if longest else 0.0

    def pause_seconds(self, point: Point) -> float:
        """Returns how long a process is paused by the fault of a call."""
        details = self._details(point)
        return details.choice(_PAUSE_SECONDS) * (0.5 + details.random())

    def late_seconds(self, point: Point) -> float:
        """Returns how late the answer of a call is, while the caller's other threads go on."""
        details = self._details(point)
        return details.choice(_LATE_SECONDS) * (0.5 + details.random())

    def jump_seconds(self, point: Point) -> float:
        """Returns how far a clock jumps by the fault of a call."""
        return self._details(point).choice(_JUMP_SECONDS)

    def happens(self, kind: str, point: Point) -> bool:
        """Returns whether a fault happens at the call, and counts it."""
        is_drawn = self._decisions.random() < self.profile.rate(kind, point.call, point.number)
        name = point.name, str(kind)
        if not self.is_on or not (is_drawn if self.only is None else name in self.only):
            return False
        call = point.call
        self.names.append(name)
        self.counts[str(kind), point.operation, f"{call.service}.{call.operation}"] += 1
        return True

    def is_out(self, point: Point, now: float) -> bool:
        """Returns whether the call's service is away, or begins to be."""
        if not self.is_on:
            return False
        service = point.call.service
        if self.happens(OUTAGE, point):
            self._outages[service] = now + self._details(point).choice(_OUTAGE_SECONDS)
        return now < self._outages.get(service, 0.0)

    def choose(self, probability: float) -> bool:
        """Returns a decision of a service, such as a second delivery."""
        return self.is_on and self._decisions.random() < probability

    def _details(self, point: Point) -> Random:
        return Random(f"{self.seed} {point.name}")
