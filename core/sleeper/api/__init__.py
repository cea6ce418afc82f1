"""The Python API: `import sleeper`, open an instance, write and query tables.

```python
import sleeper

with sleeper.open_instance("my-instance") as instance:
    table = instance.table("flights")
    table.ingest(frame)                              # Arrow, pandas, Polars, or batches
    table.query(keys=[["N14228"]]).to_pandas()       # also ranges, regions, columns, as_of
    instance.sql("SELECT count(*) FROM flights").to_arrow()
```

Rows are Arrow data: one column per field of the table's schema, in schema order, with exactly
the types of the schema. Every error is a subclass of `sleeper.errors.SleeperError`.
`docs/python-reference.md` is generated from the docstrings of this package.
"""

from typing import Any

from sleeper.api.instance import Instance, create_instance, open_instance, restore_instance
from sleeper.api.reader import TableReader
from sleeper.api.results import Changes, Rowset
from sleeper.api.table import Table
from sleeper.api.table_writer import TableWriter
from sleeper.api.transaction import Transaction
from sleeper.systems import load, systems

__all__ = [
    "Changes",
    "Instance",
    "Rowset",
    "Table",
    "TableReader",
    "TableWriter",
    "Transaction",
    "create_instance",
    "open_instance",
    "restore_instance",
]


def __getattr__(name: str) -> Any:
    # What systems offer, which they load themselves.
    offered = {each: ref for system in systems() for each, ref in system.names.items()}
    if name in offered:
        return load(offered[name])
    raise AttributeError(f"module 'sleeper.api' has no attribute {name!r}")
