"""The rule that what is derived from a table equals the table at its number.

A system that keeps something beside a table registers its comparison with `derived`. A clone is a
table with a model of its own, so it needs none.
"""

from collections import Counter
from collections.abc import Callable

from simulation.checks.rows import check_rows, read_by_query
from simulation.checks.violation import require
from simulation.model.fold import TableModel
from simulation.model.journal import Backup, Copy
from simulation.model.observer import Observer
from simulation.model.visible import Chunk, StoredRow, visible_rows
from sleeper.instance import Instance
from sleeper.processing.model import Aggregation, Processing

_COPY = "a consumer of the change feed has the rows of the table"
Compare = Callable[[TableModel, Observer], None]
"""Compares what is derived from a table with its model. It raises `Violation`."""

DERIVED: list[Compare] = []


def derived(compare: Compare) -> Compare:
    """Registers a comparison."""
    DERIVED.append(compare)
    return compare


def check_derived(model: TableModel, observer: Observer) -> None:
    """Runs all comparisons of a table."""
    for compare in DERIVED:
        compare(model, observer)


@derived
def check_copies(model: TableModel, observer: Observer) -> None:
    """Compares the copies that consumers of the change feed keep."""
    for copy in observer.journal.copies.values():
        if copy.table_id == model.id and copy.number <= model.number and not copy.is_checked:
            _check_copy(model, copy)
            copy.is_checked = True


def _check_copy(model: TableModel, copy: Copy) -> None:
    """Compares the rows before filters, which the feed does not have, but aggregated."""
    if model.processing(copy.number).filters:
        return  # compactions may have aged off rows before the copy began
    processing = Processing(aggregations=_aggregations(model, copy))
    rows = tuple(StoredRow(row) for row in copy.rows.elements())
    chunks = [Chunk(0, "copy", copy.schema, rows)]
    actual = Counter(visible_rows(chunks, copy.schema, processing, 0))
    stored = model.contents.at(copy.number)
    expected = Counter(visible_rows(stored, copy.schema, processing, 0))
    require(
        actual == expected,
        _COPY,
        f"at {copy.number}",
        table=model.id,
        missing=list((expected - actual).items())[:5],
        unexpected=list((actual - expected).items())[:5],
    )


def _aggregations(model: TableModel, copy: Copy) -> tuple[Aggregation, ...]:
    """Returns the aggregations of the copy's fields. A later schema may have other fields."""
    newest = model.processing(copy.number).aggregations
    if {each.field for each in newest} == {each.name for each in copy.schema.values}:
        return newest
    return model.processing(copy.schema.version).aggregations


def check_backup(restored: Instance, backup: Backup, observer: Observer) -> None:
    """Compares the tables of an instance that was restored from a backup."""
    names = {name: table_id for table_id, name in observer.names.items()}
    for name, number in backup.numbers.items():
        model = observer.models.get(names[name]) if name in names else None
        if model is not None and model.has_snapshot(number):
            check_rows(restored, name, model, [number], read_by_query)
