"""The format `sleeper` for Spark 4, which imports installed packages named `pyspark_*`.

Spark registers the `DefaultSource` of each. The formats `sleeper-changes` and `sleeper-stash` have
packages of their own, because a package registers one format.
"""

import logging

__all__ = ["DefaultSource"]

try:
    from sleeper.spark.data_source import SleeperDataSource as DefaultSource
except ImportError as error:
    # Spark imports the packages of all vendors together, and one that fails hides the others'.
    logging.getLogger(__name__).warning("the format sleeper is not available: %s", error)
