"""The rows that a transaction changed, as keys of a queue with their newest row.

Added rows are exported as they are. For other changes the *former* keys are those of rows that the
transaction may have taken away, which the version before it has. A former key is exported as gone
unless the table still has a row of it. If the queue's keys have the row key fields, the search for
such rows is limited to the changed row keys; otherwise it reads the whole table.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.merge.request import Stored
from sleeper.export_queue.changed_keys import ChangedKeys, Rank
from sleeper.export_queue.table_reader import TableReader
from sleeper.files import DataFile, bounds_region
from sleeper.instance import Instance
from sleeper.partitions.region import Region
from sleeper.query.changes.plan import Operation, PlannedChange
from sleeper.query.changes.read import Change, read_change
from sleeper.query.leaf_plan import FileScan, LeafPlan
from sleeper.query.row_keys import KeySet, RowKeys
from sleeper.schema.model import DELETED_COLUMN, NUMBER_COLUMN
from sleeper.statestore.reading.change_queries import LoggedCompaction


def add_version(reader: TableReader, version: int, keys: ChangedKeys) -> None:
    """Adds the rows of a version."""
    for rows in reader.read(version):
        keys.add(Rank.NEW, reader.columns.select(rows))


def add_replacement(
    reader: TableReader, version: int, former: int | None, keys: ChangedKeys
) -> None:
    """Adds the rows of a version, which replaced those of a former one, None for no rows."""
    if former is not None:
        for rows in reader.read(former):
            keys.add(Rank.FORMER, reader.columns.select_keys(rows))
    add_version(reader, version, keys)


def add_change(
    reader: TableReader, instance: Instance, change: PlannedChange, keys: ChangedKeys
) -> None:
    """Adds the changes of a transaction that is no replacement."""
    columns, schema = reader.columns, reader.columns.schema
    if change.regions or change.key_files:
        _add_delete(reader, instance, change, keys)
    elif schema.latest is None:
        for each in _read(instance, change, reader):
            keys.add(Rank.NEW, columns.select(each.rows))
    elif columns.are_whole_key and schema.latest.by is None:
        for each in _read(instance, change, reader):
            if each.operation == Operation.DELETE:
                keys.add(Rank.FORMER, columns.select_keys(each.rows))
            else:
                keys.add(Rank.NEW, columns.select(each.rows))
    else:
        _Upsert(reader, change, keys).add(instance)


def add_compaction(reader: TableReader, compaction: LoggedCompaction, keys: ChangedKeys) -> None:
    """Adds the rows that a compaction wrote. Keys that only its inputs have are gone."""
    columns, number = reader.columns, compaction.number
    stored = None if columns.schema.latest is None else Stored(has_numbers=False)
    others = () if stored is None else (DELETED_COLUMN,)

    def read(file: DataFile) -> Iterator[pa.RecordBatch]:
        leaves = (LeafPlan((), (FileScan(file, (compaction.region,)),)),)
        return reader.read_leaves(leaves, number, others, stored)

    for file in compaction.inputs:
        for rows in read(file):
            keys.add(Rank.FORMER, columns.select_keys(rows))
    if compaction.output is not None:
        for rows in read(compaction.output):
            if stored is not None:
                rows = rows.filter(pc.invert(pc.fill_null(rows.column(DELETED_COLUMN), False)))
            keys.add(Rank.NEW, columns.select(rows))


def _read(instance: Instance, change: PlannedChange, reader: TableReader) -> Iterator[Change]:
    engine = instance.queries.engine()
    return read_change(change, reader.columns.schema, instance.storage.root, engine)


def _add_delete(
    reader: TableReader, instance: Instance, change: PlannedChange, keys: ChangedKeys
) -> None:
    columns, schema = reader.columns, reader.columns.schema
    former = KeySet(columns.queue.keys)
    row_keys = RowKeys(schema, [file.region for file in change.key_files])
    for each in _read(instance, replace(change, regions=(), leaves=()), reader):
        row_keys.add(each.rows)
    names = [each.name for each in schema.row_keys]
    before = change.number - 1
    for regions, is_listed in ((change.regions, False), (row_keys.regions, True)):
        for rows in reader.read(before, regions, names):
            deleted = columns.select_keys(row_keys.filter(rows) if is_listed else rows)
            former.add(deleted)
            keys.add(Rank.FORMER, deleted)
    if columns.have_row_key and row_keys.are_listed:
        return
    within = (*change.regions, *row_keys.regions) if columns.have_row_key else None
    _add_remaining(reader, change.number, within, former, keys)


def _add_remaining(
    reader: TableReader,
    version: int,
    regions: Sequence[Region] | None,
    former: KeySet,
    keys: ChangedKeys,
) -> None:
    """Adds the rows of the version that still have a former key."""
    for rows in reader.read(version, regions):
        keys.add(Rank.REMAINING, former.filter(reader.columns.select(rows)))


class _Upsert:
    """Rows written to a table of latest rows, of which a queue's keys may change."""

    def __init__(self, reader: TableReader, change: PlannedChange, keys: ChangedKeys) -> None:
        self._reader = reader
        self._change = change
        self._keys = keys
        schema = reader.columns.schema
        assert schema.latest is not None
        self._is_ordered = schema.latest.by is not None
        self._written = KeySet(schema.keys)
        bounds = [bounds_region(schema, scan.file) for leaf in change.leaves for scan in leaf.scans]
        self._row_keys = RowKeys(schema, bounds)
        self._former = KeySet(reader.columns.queue.keys)

    def add(self, instance: Instance) -> None:
        columns, number = self._reader.columns, self._change.number
        for each in _read(instance, self._change, self._reader):
            self._written.add(each.rows)
            self._row_keys.add(each.rows)
            # With a field that orders them, rows that were written may not be the newest.
            if each.operation == Operation.UPSERT and not self._is_ordered:
                self._keys.add(Rank.NEW, columns.select(each.rows))
        if self._is_ordered:
            self._add_newest()
        self._add_former()
        if self._is_ordered or not columns.have_whole_key:
            regions = self._row_keys.regions if columns.have_row_key else None
            _add_remaining(self._reader, number, regions, self._former, self._keys)

    def _add_newest(self) -> None:
        """Adds the rows of the transaction that the table shows after it."""
        number, regions = self._change.number, self._row_keys.regions
        stored = Stored(has_numbers=True, has_tombstones=False)
        for rows in self._reader.read(number, regions, (NUMBER_COLUMN,), stored):
            newest = rows.filter(pc.equal(rows.column(NUMBER_COLUMN), number))
            self._keys.add(Rank.NEW, self._reader.columns.select(newest))

    def _add_former(self) -> None:
        columns = self._reader.columns
        names = [each.name for each in columns.schema.keys]
        before, regions = self._change.number - 1, self._row_keys.regions
        for rows in self._reader.read(before, regions, names):
            deleted = columns.select_keys(self._written.filter(rows))
            self._former.add(deleted)
            self._keys.add(Rank.FORMER, deleted)
