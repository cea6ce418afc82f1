"""Rules of reads: each returns the rows of one version, which it keeps until it ends."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from simulation.checks.violation import require
from simulation.model.fold import TableModel
from simulation.model.journal import Journal, Read
from simulation.model.visible import Row

_READS = "a read returns the rows of one version"
_HELD = "a version that is held can be read"


def check_reads(model: TableModel, journal: Journal) -> None:
    """Checks the reads of a table, which the model has seen, and removes them from the journal."""
    for read in [each for each in journal.reads if each.table_id == model.id]:
        if read.last <= model.number:
            journal.reads.remove(read)
            _check_read(model, read)
    lost = [each for each in journal.lost_reads if each.table_id == model.id]
    require(not lost, _HELD, f"version {lost[0].version}" if lost else "", lost=lost)


def _check_read(model: TableModel, read: Read) -> None:
    if read.is_of_now and model.processing(read.last).filters:
        return  # a filter was added, and nobody knows the time that it took
    versions: Iterable[int | None] = range(max(read.first, model.first, 1), read.last + 1)
    if read.time_ms is not None:
        versions = [model.version_at(read.time_ms)]
    different: Counter[Row] = Counter()
    for version in versions:
        if version is None or not model.has_snapshot(version):
            continue
        expected = _selected(model, version, read)
        if expected == read.rows:
            return
        different = expected
    require(
        False,
        _READS,
        f"{read.what} at {read.first} to {read.last}",
        table=model.id,
        keys=read.keys,
        columns=read.columns,
        missing=list((different - read.rows).items())[:5],
        unexpected=list((read.rows - different).items())[:5],
    )


def _selected(model: TableModel, version: int, read: Read) -> Counter[Row]:
    """Returns the rows of the version that the read asked for."""
    schema, rows = model.schema(version), model.rows(version)
    if read.keys is not None:
        count = len(schema.row_keys)
        rows = Counter({row: n for row, n in rows.items() if row[:count] in read.keys})
    if read.columns is not None:
        names = [each.name for each in schema.fields]
        if not set(read.columns) <= set(names):
            return Counter()
        rows = _projected(rows, _picker([names.index(name) for name in read.columns]))
    return rows


def _picker(positions: Sequence[int]) -> Callable[[Row], Row]:
    return lambda row: tuple(row[position] for position in positions)


def _projected(rows: Counter[Row], pick: Callable[[Row], Row]) -> Counter[Row]:
    result: Counter[Row] = Counter()
    for row, count in rows.items():
        result[pick(row)] += count
    return result
