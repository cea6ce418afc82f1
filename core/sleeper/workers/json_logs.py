"""JSON logs of functions and tasks."""

import logging

from aws_lambda_powertools import Logger
from aws_lambda_powertools.logging.utils import copy_config_to_registered_loggers

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
