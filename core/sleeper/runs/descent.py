"""How far down the tree references of a table's files go, from its properties."""

from sleeper.properties.table import COMPACTION_LEAF_BYTES_MIN, COMPACTION_LEAF_ROWS_MIN
from sleeper.properties.values import TableProperties
from sleeper.statestore.reading.descent import Descent


def table_descent(properties: TableProperties) -> Descent | None:
    """Returns the sizes for references in leaves. None if all files have these."""
    rows = properties.get(COMPACTION_LEAF_ROWS_MIN)
    return Descent(rows, properties.get(COMPACTION_LEAF_BYTES_MIN)) if rows else None
