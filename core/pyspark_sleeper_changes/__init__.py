"""The format `sleeper-changes` for Spark 4; see `pyspark_sleeper`."""

import logging

__all__ = ["DefaultSource"]

try:
    from sleeper.spark.changes import SleeperChangesSource as DefaultSource
except ImportError as error:
    logging.getLogger(__name__).warning("the format sleeper-changes is not available: %s", error)
