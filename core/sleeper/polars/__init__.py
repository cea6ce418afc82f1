"""Tables as lazy frames of Polars, which read only the columns, keys and rows that they need.

```python
from sleeper.polars import scan_sleeper

scan_sleeper("my-instance", "flights").filter(pl.col("tailnum") == "N14228").collect()
```
"""

from sleeper.polars.scan import scan_sleeper

__all__ = ["scan_sleeper"]
