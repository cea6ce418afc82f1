"""The services of one simulated account, and their substitution for those of AWS."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import obstore
from botocore.config import Config
from datafusion.object_store import LocalFileSystem

import sleeper.aws.clients
import sleeper.aws.external_queue
import sleeper.datafiles.engine.session
import sleeper.storage.bucket
from simulation.calls import Calls
from simulation.services.control import Control, ControlClient
from simulation.services.dynamodb.client import DynamoClient
from simulation.services.dynamodb.service import DynamoService
from simulation.services.requests import Requests, Sleep
from simulation.services.s3.buckets import ObjectService
from simulation.services.s3.client import S3Client
from simulation.services.s3.functions import FUNCTIONS
from simulation.services.s3.store import SimulatedStore, open_store
from simulation.services.sqs.client import SqsClient
from simulation.services.sqs.queues import QueueService
from sleeper.retries import Backoff

# The waits by which `sleeper.aws.clients` finds the number of attempts.
_FIRST_WAIT_SECONDS, _WAIT_SECONDS_MAX = 0.025, 20.0
_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "simulated",
    "AWS_SECRET_ACCESS_KEY": "simulated",
    "AWS_REGION": "eu-west-2",
    "AWS_DEFAULT_REGION": "eu-west-2",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_CONTROL = {"sts", "ecs", "events", "secretsmanager"}


class Services:
    """The services of one account. See the package.

    The query engine reads objects only if there is a `folder`, which has a file for each.
    """

    def __init__(self, calls: Calls, sleep: Sleep, folder: Path | None = None) -> None:
        self.dynamo = DynamoService()
        self.sqs = QueueService()
        self.s3 = ObjectService(calls.now_ms, folder)
        self.control = Control()
        self.calls = calls
        self._sleep = sleep

    def client(self, service: str, config: Config | None = None) -> Any:
        """Returns a new client of a service, such as `sqs`."""
        requests = Requests(self.calls, self._sleep, service, _attempts(config))
        if service == "dynamodb":
            return DynamoClient(self.dynamo, requests)
        if service == "sqs":
            return SqsClient(self.sqs, requests)
        if service == "s3":
            return S3Client(self.s3, requests)
        if service in _CONTROL:
            return ControlClient(self.control, requests)
        raise NotImplementedError(f"service {service}")

    def store(self, name: str, **settings: Any) -> SimulatedStore:
        """Returns a store of a bucket, with the settings of `S3Store`."""
        return open_store(self.s3, self.calls, self._sleep, name, **settings)

    @contextmanager
    def install(self) -> Iterator[None]:
        """Gives Sleeper's code these services instead of those of AWS, in this process."""
        with ExitStack() as stack:
            kept = {n: v for n, v in os.environ.items() if not n.startswith("AWS_")}
            stack.enter_context(patch.dict(os.environ, {**kept, **_ENVIRONMENT}, clear=True))

            def replace(target: Any, name: str, value: object) -> None:
                stack.enter_context(patch.object(target, name, value))

            def make_client(service: str, config: Config | None = None, **_settings: Any) -> Any:
                return self.client(service, config)

            replace(sleeper.aws.clients, "make_client", make_client)
            replace(sleeper.aws.external_queue, "make_client", make_client)
            replace(sleeper.storage.bucket, "S3Store", self.store)
            replace(sleeper.datafiles.engine.session, "AmazonS3", self._engine_store)
            for name, function in FUNCTIONS.items():
                replace(obstore, name, _dispatch(function, getattr(obstore, name)))
            _forget_clients()
            try:
                yield
            finally:
                _forget_clients()

    def _engine_store(self, name: str, **_settings: object) -> LocalFileSystem:
        return LocalFileSystem(prefix=str(self.s3.folder_of(name)))


def _dispatch(simulated: Callable[..., Any], native: Callable[..., Any]) -> Callable[..., Any]:
    def call(store: Any, *arguments: Any, **options: Any) -> Any:
        function = simulated if isinstance(store, SimulatedStore) else native
        return function(store, *arguments, **options)

    return call


def _forget_clients() -> None:
    """Clears the caches of clients and stores of this process."""
    sleeper.aws.clients.aws_client.cache_clear()
    sleeper.aws.clients.check_owner.cache_clear()
    sleeper.aws.external_queue._client.cache_clear()
    sleeper.storage.bucket.open_bucket.cache_clear()


def _attempts(config: Config | None) -> int:
    retries = getattr(config, "retries", None) or {}
    if "total_max_attempts" in retries:
        return int(retries["total_max_attempts"])
    return 1 + int(Backoff.for_requests(_FIRST_WAIT_SECONDS, _WAIT_SECONDS_MAX).retries)
