"""Tables as views of DuckDB, which read only the columns and keys that a statement needs.

```python
from sleeper.duckdb import register_tables

register_tables(connection, instance)
connection.sql("SELECT count(*) FROM flights WHERE tailnum = 'N14228'")
```
"""

from sleeper.duckdb.tables import register_tables

__all__ = ["register_tables"]
