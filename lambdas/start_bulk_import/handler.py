"""Gives the bulk imports of a platform's queue to the platform."""

import os
from functools import partial

from sleeper.bulk_import.platform import PlatformName
from sleeper.errors import InvalidRequestError
from sleeper.wiring.bulk_import_starting import start_bulk_import
from sleeper.wiring.instance import Instance
from sleeper.wiring.lambda_function import Event, lambda_function
from sleeper.wiring.message_batches import Failures, run_messages
from sleeper.wiring.queue_name import QueueName


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """SLEEPER_BULK_IMPORT_PLATFORM is `emr_serverless`, `emr` or `eks`."""
    name = PlatformName(os.environ["SLEEPER_BULK_IMPORT_PLATFORM"])
    start = partial(start_bulk_import, instance, name)
    queue = QueueName(f"bulk_import_{name.value}")
    return run_messages(event, instance, queue, start, (InvalidRequestError,))
