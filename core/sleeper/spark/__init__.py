"""Sleeper tables as Spark DataFrames, and the jobs that run on Spark.

The only package that imports PySpark. `register(spark)` registers the formats `sleeper`,
`sleeper-changes` and `sleeper-stash` in a session, for `spark.read`, `df.write`,
`spark.readStream` and `df.writeStream`. `read_table` returns a table as a DataFrame, `write_table`
adds the rows of one, `delete_keys` and `delete_where` delete rows of a table, `read_stash` reads a
table of a stash, and `enrich` adds values of an adjunct store by key.

The driver plans in short-lived Python processes: a read at one version under a hold, or a write
to the current leaves. Plans are pickled and sent to executors, which open the instance's data
but, as a rule, no table's state. The driver commits once.
"""

from typing import TYPE_CHECKING, Any

from sleeper.systems import load, systems

if TYPE_CHECKING:
    from sleeper.adjunct.spark.enrichment import StoreSource, enrich
    from sleeper.spark.data_source import register
    from sleeper.spark.deletes import delete_keys, delete_where
    from sleeper.spark.table_read import read_table
    from sleeper.spark.table_write import write_table
    from sleeper.stash.spark.source import read_stash

__all__ = [
    "register",
    "read_table",
    "write_table",
    "delete_keys",
    "delete_where",
    "read_stash",
    "enrich",
    "StoreSource",
]

_REFERENCES = {
    "register": "sleeper.spark.data_source:register",
    "read_table": "sleeper.spark.table_read:read_table",
    "write_table": "sleeper.spark.table_write:write_table",
    "delete_keys": "sleeper.spark.deletes:delete_keys",
    "delete_where": "sleeper.spark.deletes:delete_where",
    **{name: each for system in systems() for name, each in system.spark_names.items()},
}


def __getattr__(name: str) -> Any:
    if name in _REFERENCES:
        return load(_REFERENCES[name])
    raise AttributeError(f"module 'sleeper.spark' has no attribute {name!r}")
