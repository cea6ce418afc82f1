"""Submits bulk imports of a platform's queue to the platform."""

import os
from functools import partial

from sleeper.bulk_import.start import start_bulk_import
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.jobs.spark_platform import PlatformName
from sleeper.workers.lambda_function import Event, lambda_function
from sleeper.workers.message_batch import Failures, run_messages


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """SLEEPER_BULK_IMPORT_PLATFORM is `emr_serverless`, `emr` or `eks`."""
    name = PlatformName(os.environ["SLEEPER_BULK_IMPORT_PLATFORM"])
    start = partial(start_bulk_import, instance, name)
    queue = QueueName(f"bulk_import_{name.value}")
    return run_messages(event, instance, queue, start)
