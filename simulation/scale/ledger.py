"""The bill: counts of everything that has a price, by its purpose, and their dollars."""

from collections import Counter, defaultdict
from collections.abc import Mapping

from sleeper.billing.prices import Prices, read_prices

LAMBDA_RUNS = "lambda_million_invocations"
LAMBDA_GB_SECONDS = "lambda_arm_gb_second"
SQS_REQUESTS = "sqs_million_fifo_requests"
WRITE_UNITS = "dynamodb_million_write_units"
CPU_HOURS = "fargate_arm_cpu_hour"
GB_HOURS = "fargate_arm_gb_hour"

# CloudWatch, us-east-1, November 2026: an account's first 10,000 custom metrics, then the rest.
_METRICS_FIRST = 10_000
_METRIC_MONTH, _METRIC_MONTH_REST = 0.30, 0.10
_MILLION = "million"


class Ledger:
    """Counts units by purpose, such as an operation, and by the name of their price."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._prices: Prices = read_prices()

    def add(self, purpose: str, units: Mapping[str, float], times: float = 1) -> None:
        """Adds units by the name of their price."""
        counts = self.counts[purpose]
        for name, count in units.items():
            counts[name] += count * times  # type: ignore[assignment]

    def total(self, name: str) -> float:
        """Returns the units of this price for all purposes."""
        return sum(counts[name] for counts in self.counts.values())

    def dollars(self) -> dict[str, float]:
        """Returns the dollars of each purpose."""
        return {purpose: self._value(counts) for purpose, counts in sorted(self.counts.items())}

    def _value(self, counts: Mapping[str, float]) -> float:
        prices = self._prices.dollars
        return sum(
            prices[name] * count / (1e6 if _MILLION in name else 1)
            for name, count in counts.items()
        )


def metric_dollars(metrics: int) -> float:
    """Returns the price of so many custom metrics a month."""
    return (
        min(metrics, _METRICS_FIRST) * _METRIC_MONTH
        + max(0, metrics - _METRICS_FIRST) * _METRIC_MONTH_REST
    )
