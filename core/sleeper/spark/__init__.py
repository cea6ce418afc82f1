"""Sleeper tables as Spark DataFrames, and the jobs that run on Spark.

The only package that imports PySpark. `register(spark)` makes the format `sleeper` known
to a session: `spark.read`, `df.write`, `spark.readStream` and `df.writeStream`.

The driver plans in short-lived Python processes: a read at one version under a hold, a
write with the leaves as they are. What they decide is pickled and sent along. Executors
open the instance's data but, as a rule, no table's state. The driver commits, once.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sleeper.spark.data_source import register

__all__ = ["register"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from sleeper.spark import data_source

        return getattr(data_source, name)
    raise AttributeError(f"module 'sleeper.spark' has no attribute {name!r}")
