"""List prices of AWS, for the report on costs and for benchmarks.

`prices.json` has each price in dollars by its name, which ends with its unit, and the region and
the month in which the list was read. Prices of a million requests are of counted requests.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

_MILLION = 1e6
_OF_A_MILLION = "_million_"


@dataclass(frozen=True, slots=True)
class TaskSize:
    """The size of a Fargate task."""

    cpus: float
    memory_gib: float


@dataclass(frozen=True, slots=True)
class Prices:
    """A table of prices in dollars by name, with the `source` of the list and its `region`."""

    source: str
    region: str
    dollars: Mapping[str, float]

    def requests(self, counts: Mapping[str, float]) -> float:
        """Returns the price of requests and capacity units, whose prices are per million."""
        return sum(self.dollars[name] * count / _MILLION for name, count in counts.items())

    def cost(self, amounts: Mapping[str, float]) -> float:
        """Returns the price of amounts in the units of their prices, requests as their count."""
        counts = {name: each for name, each in amounts.items() if _OF_A_MILLION in name}
        others = {name: each for name, each in amounts.items() if name not in counts}
        return self.requests(counts) + sum(self.dollars[name] * n for name, n in others.items())

    def task(self, size: TaskSize, cpu_seconds: float) -> float:
        """Returns the price of the time in which a task of this size uses so much of its CPUs."""
        return self.cost(task_amounts(size, cpu_seconds / 3600 / size.cpus))

    def function(self, memory_mb: int, seconds: float) -> float:
        """Returns the price of one run of a function."""
        return self.cost(function_amounts(memory_mb, 1, seconds))


def function_amounts(memory_mb: int, runs: float, seconds: float) -> dict[str, float]:
    """Returns what is billed of runs of a function that take so many seconds together."""
    return {
        "lambda_million_invocations": runs,
        "lambda_arm_gb_second": seconds * memory_mb / 1024,
    }


def task_amounts(size: TaskSize, hours: float) -> dict[str, float]:
    """Returns what is billed of a task with a public address."""
    return {
        "fargate_arm_cpu_hour": hours * size.cpus,
        "fargate_arm_gb_hour": hours * size.memory_gib,
        "public_address_hour": hours,
    }


def read_prices() -> Prices:
    """Returns the prices of `prices.json`: its numbers. Its texts describe them."""
    content = json.loads((resources.files(__package__) / "prices.json").read_text())
    dollars = {name: value for name, value in content.items() if not isinstance(value, str)}
    return Prices(f"{content['source']}, {content['date']}", content["region"], dollars)
