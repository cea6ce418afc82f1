"""Logs of lambdas and tasks: a line of JSON for each, with the house's extra keys."""

import logging

from aws_lambda_powertools import Logger
from aws_lambda_powertools.logging.utils import copy_config_to_registered_loggers

_PACKAGE = "sleeper"


def log_as_json(service: str | None = None) -> Logger:
    """Has every logger of the package write JSON to standard output, and gives one that does.

    Level and, unless it is given, the service's name come from Powertools' variables of the
    environment.
    """
    logger = Logger(service=service)
    package = logging.getLogger(_PACKAGE)
    copy_config_to_registered_loggers(logger, include={_PACKAGE})
    # Lambda has a handler of its own above, which would write each line again.
    package.propagate = False
    return logger
