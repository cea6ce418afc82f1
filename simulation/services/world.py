"""The services of one simulated account, and their substitution for those of AWS."""

from typing import Any

from botocore.config import Config

from simulation.calls import Calls
from simulation.services.dynamodb.client import DynamoClient
from simulation.services.dynamodb.service import DynamoService
from simulation.services.requests import Requests, Sleep
from sleeper.retries import Backoff

# The waits by which `sleeper.aws.clients` finds the number of attempts.
_FIRST_WAIT_SECONDS, _WAIT_SECONDS_MAX = 0.025, 20.0


class Services:
    """The services of one account. See the package."""

    def __init__(self, calls: Calls, sleep: Sleep) -> None:
        self.dynamo = DynamoService()
        self._calls = calls
        self._sleep = sleep

    def client(self, service: str, config: Config | None = None) -> Any:
        """Returns a new client of a service, such as `sqs`."""
        requests = Requests(self._calls, self._sleep, service, _attempts(config))
        if service == "dynamodb":
            return DynamoClient(self.dynamo, requests)
        raise NotImplementedError(f"service {service}")


def _attempts(config: Config | None) -> int:
    retries = getattr(config, "retries", None) or {}
    if "total_max_attempts" in retries:
        return int(retries["total_max_attempts"])
    return 1 + int(Backoff.for_requests(_FIRST_WAIT_SECONDS, _WAIT_SECONDS_MAX).retries)
