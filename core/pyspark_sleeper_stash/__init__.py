"""The format `sleeper-stash` for Spark 4; see `pyspark_sleeper`."""

import logging

__all__ = ["DefaultSource"]

try:
    from sleeper.stash.spark.source import SleeperStashSource as DefaultSource
except ImportError as error:
    logging.getLogger(__name__).warning("the format sleeper-stash is not available: %s", error)
