"""Checks the bulk imports that a platform runs."""

import os
from dataclasses import asdict

from sleeper.bulk_import.watch import watch_bulk_imports
from sleeper.instance import Instance
from sleeper.jobs.spark_platform import PlatformName
from sleeper.workers.lambda_function import Event, lambda_function


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, int]:  # noqa: ARG001 (the event has no content)
    """SLEEPER_BULK_IMPORT_PLATFORM is `emr_serverless`, `emr` or `eks`."""
    name = PlatformName(os.environ["SLEEPER_BULK_IMPORT_PLATFORM"])
    return asdict(watch_bulk_imports(instance, name))
