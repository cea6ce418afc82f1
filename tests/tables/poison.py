"""Tables with hidden rows on which expressions fail, each hidden in another way.

Every table has the ids 0 to 9. Row 2 is hidden and poisoned: each of `EXPRESSIONS` fails on it and
on no other row. `PLAIN` has the rows that are visible, and so the expected answers.
"""

import json
import time
from pathlib import Path

import pyarrow as pa

import sleeper
from sleeper.properties.table import QUERY_CALLERS

SCHEMA = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [
        {"name": "z", "type": "LongType"},
        {"name": "n", "type": "IntType"},
        {"name": "big", "type": "LongType"},
        {"name": "text", "type": "StringType"},
        {"name": "at", "type": "LongType"},
        {"name": "label", "type": "StringType"},
    ],
}
EXPRESSIONS = [
    "10 / z",
    "10 % z",
    "abs(n)",
    "CAST(big AS INT)",
    "ascii(chr(big))",
    "CAST(text AS BIGINT)",
    "CAST(text AS DECIMAL(9, 2))",
    "1 / (CASE WHEN left(text, 1) = 'x' THEN z ELSE 1 END)",
]
POISON_ID = 2
RESTRICTED_CALLER = "restricted"
HIDDEN = ("deleted", "key_file", "aged", "replaced", "cut", "restricted")
"""The tables, named after what hides the row."""
PLAIN = "plain"
_DAY_MS = 86_400_000
_PROPERTIES = {
    "aged": {"sleeper.table.filters": f"ageOff(at,{_DAY_MS})"},
    "replaced": {"sleeper.table.rows": "latest"},
    "cut": {"sleeper.table.compaction.files.batch.size": "3"},
    "restricted": {
        QUERY_CALLERS.name: json.dumps(
            {RESTRICTED_CALLER: {"iterator": "RowSecurity", "config": "label,public"}}
        )
    },
}


def make_rows(ids: range | list[int], poison_id: int | None = None) -> pa.Table:
    """Returns rows, of which that with the id is poisoned."""
    now_ms = time.time_ns() // 1_000_000
    is_poison = [each == poison_id for each in ids]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "z": pa.array([0 if p else n + 1 for n, p in zip(ids, is_poison, strict=True)]),
            "n": pa.array(
                [-(2**31) if p else n for n, p in zip(ids, is_poison, strict=True)], pa.int32()
            ),
            "big": pa.array([2**40 if p else n + 65 for n, p in zip(ids, is_poison, strict=True)]),
            "text": ["x" if p else str(n) for n, p in zip(ids, is_poison, strict=True)],
            "at": pa.array([0 if p else now_ms for p in is_poison]),
            "label": ["secret" if p else "public" for p in is_poison],
        }
    )


def make_poisoned_tables(folder: Path) -> sleeper.Instance:
    """Creates an instance with the tables of `HIDDEN`, and `PLAIN`. The rows are in two leaves."""
    instance = sleeper.create_instance(folder)
    visible = [each for each in range(10) if each != POISON_ID]
    instance.create_table(PLAIN, SCHEMA, split_points=[5]).ingest(make_rows(visible))
    for name in HIDDEN:
        properties = _PROPERTIES.get(name, {})
        table = instance.create_table(name, SCHEMA, properties, split_points=[5])
        table.ingest(make_rows(range(10), POISON_ID))
    instance.table("deleted").delete(keys=[[POISON_ID]])
    instance.table("key_file").delete(keys=pa.table({"id": [POISON_ID, *range(100, 20_000)]}))
    replaced = instance.table("replaced")
    replaced.ingest(make_rows([POISON_ID]))
    replaced.delete(keys=[[POISON_ID]])
    _cut(instance)
    return instance


def compact_all(instance: sleeper.Instance) -> None:
    """Removes hidden rows from the files, unless they are hidden from a caller only."""
    for name in HIDDEN:
        instance.table(name).compact(full=True)
    instance.run_until_idle(workers=1)


def _cut(instance: sleeper.Instance) -> None:
    """Compacts one of two leaves, so that a file is read for the other leaf only."""
    table = instance.table("cut")
    for each in (0, 1):
        table.delete(keys=[[each]])
        table.ingest(make_rows([each]))
    table.delete(keys=[[POISON_ID]])
    table.compact()
    instance.run_until_idle(workers=1)
