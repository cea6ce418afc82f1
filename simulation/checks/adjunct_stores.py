"""The rule that an adjunct store equals its table at its position: one row of each key."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from simulation.checks.look import Look
from simulation.checks.violation import require
from simulation.model.fold import TableModel
from simulation.model.visible import Row
from simulation.systems.records import StoreRead
from sleeper.schema.model import PrimitiveType

_STORE = "an adjunct store has its table's keys and values"
# The types whose values a store returns in the form in which they are compared.
_COMPARED = {PrimitiveType.INT, PrimitiveType.LONG, PrimitiveType.STRING, PrimitiveType.BOOLEAN}


def check_stores(look: Look) -> None:
    """Checks what was read of stores, whose tables the models know now."""
    reads = look.observer.journal.store_reads
    for read in list(reads):
        model = look.model(read.table_id)
        if model is not None and read.number > model.number:
            continue
        reads.remove(read)
        if model is None or model.processing(read.number).filters:
            continue  # a filter was added
        if model.has_snapshot(read.number):
            _check_read(read, model)


def _check_read(read: StoreRead, model: TableModel) -> None:
    schema = model.schema(read.number)
    keys = len(schema.row_keys)
    expected: dict[Row, list[Row]] = defaultdict(list)
    for row in model.rows(read.number):
        expected[row[:keys]].append(row[keys:])
    details = {"store": read.store, "table": read.table_id, "position": read.number}
    require(
        expected.keys() == read.values.keys(),
        _STORE,
        "its keys differ",
        **details,
        missing=sorted(expected.keys() - read.values.keys(), key=repr)[:5],
        unexpected=sorted(read.values.keys() - expected.keys(), key=repr)[:5],
    )
    rest = schema.fields[keys:]
    names = [each.name for each in rest if each.type in _COMPARED]
    positions = [i for i, each in enumerate(rest) if each.type in _COMPARED]
    for key, value in read.values.items():
        rows = {tuple(row[at] for at in positions) for row in expected[key]}
        actual = _pick(value, names)
        require(
            actual in rows,
            _STORE,
            f"key {key}",
            **details,
            value=actual,
            rows=sorted(rows, key=repr),
        )


def _pick(value: Mapping[str, Any], names: list[str]) -> Row:
    return tuple(value.get(name) for name in names)
