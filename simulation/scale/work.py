"""Kinds of work, as `measure` has measured them: how long one takes, and what it costs.

A request takes the time of its service, because the servers of the measurement are on one machine.
Processor time counts as measured, on the share of a processor that a function's memory provides.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).with_name("measured.json")

# Usual times of AWS's services within a region, in seconds.
_REQUEST_SECONDS = {
    "dynamodb.TransactWriteItems": 0.012,
    "dynamodb.PutItem": 0.006,
    "dynamodb": 0.004,
    "sqs": 0.008,
    "s3": 0.03,
    "ecs": 0.25,
}
# Requests that the service of functions makes, and not the function.
_POLLING = {"sqs.ReceiveMessage", "sqs.DeleteMessage"}
_CPU_MEMORY_MB = 1769
"""The memory of a function that provides one processor."""


@dataclass(frozen=True, slots=True)
class Work:
    """A kind of work: its processor seconds, its requests by operation and their units by price."""

    cpu_seconds: float
    requests: Mapping[str, float]
    prices: Mapping[str, float]

    def seconds(self, memory_mb: int = _CPU_MEMORY_MB) -> float:
        """Returns its duration in a function of that memory, or in a task by default."""
        waits = (n * _request_seconds(name) for name, n in self.requests.items())
        return self.cpu_seconds / min(1.0, memory_mb / _CPU_MEMORY_MB) + sum(waits)

    def mixed(self, other: "Work", share: float) -> "Work":
        """Returns the mean of this work and a `share` of the other."""
        return self.scaled(1 - share).plus(other.scaled(share))

    def scaled(self, times: float) -> "Work":
        """Returns the work so many times."""
        return Work(
            self.cpu_seconds * times,
            {name: n * times for name, n in self.requests.items()},
            {name: n * times for name, n in self.prices.items()},
        )

    def plus(self, other: "Work") -> "Work":
        """Returns both works in one."""
        return Work(
            self.cpu_seconds + other.cpu_seconds,
            _sum(self.requests, other.requests),
            _sum(self.prices, other.prices),
        )


def read_works(path: Path = MEASURED) -> dict[str, Work]:
    """Returns the measured kinds of work by name."""
    content: dict[str, Any] = json.loads(path.read_text())["work"]
    return {
        name: Work(
            each["cpu_seconds"],
            {n: count for n, count in each["requests"].items() if n not in _POLLING},
            each["prices"],
        )
        for name, each in content.items()
    }


def _request_seconds(name: str) -> float:
    return _REQUEST_SECONDS.get(name) or _REQUEST_SECONDS[name.partition(".")[0]]


def _sum(left: Mapping[str, float], right: Mapping[str, float]) -> dict[str, float]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in sorted({*left, *right})}
