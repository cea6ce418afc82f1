"""JSON logs and metrics of functions and tasks."""

import logging
from collections.abc import Mapping

from aws_lambda_powertools import Logger
from aws_lambda_powertools.logging.utils import copy_config_to_registered_loggers
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import (
    AmazonCloudWatchEMFProvider,
)

from sleeper.reports.metric import INSTANCE, NAMESPACE

_PACKAGE = "sleeper"


def log_as_json(service: str | None = None) -> Logger:
    """Makes the package's loggers write JSON to standard output, and returns such a logger.

    Powertools reads the level, and by default the service, from environment variables.
    """
    logger = Logger(service=service)
    package = logging.getLogger(_PACKAGE)
    copy_config_to_registered_loggers(logger, include={_PACKAGE})
    # The root logger has a handler of Lambda, which would write each line again.
    package.propagate = False
    return logger


def log_metrics(instance_id: str, dimension: str, value: str, counts: Mapping[str, int]) -> None:
    """Logs metrics in the embedded metric format of CloudWatch."""
    # Without the service as a dimension, metrics do not depend on the function.
    metrics = AmazonCloudWatchEMFProvider(namespace=NAMESPACE, service="")
    metrics.add_dimension(INSTANCE, instance_id)
    metrics.add_dimension(dimension, value)
    for metric, count in counts.items():
        metrics.add_metric(str(metric), "Count", count)
    metrics.flush_metrics()
