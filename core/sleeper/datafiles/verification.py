"""Verification of data files: in full against the state, or to find a damaged input.

Memory is bounded by pages. Both checksums are verified, of pages and of sections of the file.
"""

import errno
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.casts import cast_column
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.key_values import as_key_column
from sleeper.datafiles.merge.key_runs import is_ascending
from sleeper.datafiles.merge.plan import merge
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.datafiles.sidecars.checksum import check_bytes, checksum_from_bytes, find_fault
from sleeper.datafiles.sidecars.key_filter import KeyFilter, key_filter_from_bytes
from sleeper.datafiles.sidecars.key_order import encode_row
from sleeper.datafiles.sidecars.row_hashes import hash_rows
from sleeper.datafiles.sidecars.sketches import sketches_from_bytes
from sleeper.datafiles.sources.files import combined
from sleeper.datafiles.validity import UnfitError, check_field
from sleeper.datafiles.write.route import rows_in_region
from sleeper.errors import (
    DataError,
    NotFoundError,
    StateMovedOnError,
    UnavailableError,
    is_transient,
)
from sleeper.files import CHECKSUM_SUFFIX, FILTER_SUFFIX, SKETCHES_SUFFIX, DataFile
from sleeper.partitions.partition import Partition, PartitionId
from sleeper.schema.model import HIDDEN_COLUMNS, Schema
from sleeper.storage.location import DataRoot

_BATCH_ROWS = 16_384


@dataclass(frozen=True, slots=True)
class FileFault:
    """A fault of a file, with its row group if known."""

    path: str
    fault: str
    row_group: int | None = None


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """A file in the state, and its exact numbers of rows by partition.

    `partitions` omits those for which the state has estimates only.
    """

    file: DataFile
    partitions: tuple[tuple[Partition, int], ...] = ()


def verify_file(
    root: DataRoot,
    schema: Schema,
    expected: ExpectedFile,
    on_rows: Callable[[int], None] = lambda _: None,
) -> list[FileFault]:
    """Reads the file and its sidecars and returns their faults. `on_rows` receives row counts.

    The file has the schema, or an earlier one.
    """
    file = expected.file
    try:
        schema = schema.at(file.schema_version)
    except DataError as error:
        return [FileFault(file.path, str(error))]
    sidecars = _Sidecars()
    faults = list(_check_sidecars(root, schema, file, sidecars))
    try:
        with (
            root.open(file.path) as content,
            pq.ParquetFile(content, page_checksum_verification=True, pre_buffer=False) as parquet,
        ):
            row_faults = list(_check_rows(parquet, schema, expected, sidecars, on_rows))
        faults += row_faults
        # Faults of rows are more precise than those of bytes.
        if sidecars.has_checksum and not row_faults:
            fault = find_fault(root, file.path)
            faults += [] if fault is None else [FileFault(file.path, fault)]
    except FileNotFoundError:
        faults.append(FileFault(file.path, "it is not there"))
    except (pa.ArrowException, OSError) as error:
        _raise_if_transient(file.path, error)
        faults.append(FileFault(file.path, f"its footer cannot be read: {_one_line(error)}"))
    return faults


def _raise_if_transient(path: str, error: Exception) -> None:
    # An unreadable sector is a fault of this file. Other files are still verified.
    if is_transient(error) and getattr(error, "errno", None) != errno.EIO:
        raise UnavailableError(f"cannot read {path}: {_one_line(error)}") from error


@dataclass(slots=True)
class _Sidecars:
    """The sidecars that verify rows and bytes."""

    key_filter: KeyFilter | None = None
    has_checksum: bool = False


def _check_sidecars(
    root: DataRoot, schema: Schema, file: DataFile, sidecars: _Sidecars
) -> Iterator[FileFault]:
    for suffix in file.sidecars:
        path = file.path + suffix
        try:
            content = root.read(path)
            if suffix == SKETCHES_SUFFIX:
                sketches_from_bytes(schema, content, path)
            if suffix == FILTER_SUFFIX:
                sidecars.key_filter = key_filter_from_bytes(content, path)
            if suffix == CHECKSUM_SUFFIX:
                checksum_from_bytes(content, path)
                sidecars.has_checksum = True
        except NotFoundError:
            yield FileFault(path, "it is not there")
        except (DataError, UnavailableError) as error:
            yield FileFault(path, str(error))


def _check_rows(
    parquet: pq.ParquetFile,
    schema: Schema,
    expected: ExpectedFile,
    sidecars: _Sidecars,
    on_rows: Callable[[int], None],
) -> Iterator[FileFault]:
    path = expected.file.path
    kind = parquet.schema_arrow
    if schema.latest is not None:
        columns = [kind.field(name) for name in kind.names if name not in HIDDEN_COLUMNS]
        kind = pa.schema(columns)
    expected_kind = arrow_schema(schema)
    if [(f.name, f.type) for f in kind] != [(f.name, f.type) for f in expected_kind]:
        yield FileFault(
            path, f"its columns are {_columns(kind)}: expected {_columns(expected_kind)}"
        )
        return
    checked = _Rows(schema, expected, sidecars.key_filter)
    for group in range(parquet.num_row_groups):
        try:
            for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[group], use_threads=False):
                checked.add(batch, group)
                on_rows(batch.num_rows)
        except (pa.ArrowException, OSError) as error:
            _raise_if_transient(path, error)
            checked.is_whole = False
            checked.last = None
            yield FileFault(path, f"it cannot be read: {_one_line(error)}", group)
    yield from checked.faults()


@dataclass(slots=True)
class _Rows:
    """The state of the check of a file's rows. Reports the first fault of each kind."""

    schema: Schema
    expected: ExpectedFile
    key_filter: KeyFilter | None = None
    rows: int = 0
    inside: Counter[PartitionId] = field(default_factory=Counter)
    last: pa.RecordBatch | None = None
    is_whole: bool = True
    first_faults: dict[str, FileFault] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch, group: int) -> None:
        if not self._check_values(batch, group):
            # Keys that no field can have are not compared.
            self.is_whole = False
            self.last = None
            self.rows += batch.num_rows
            return
        keys = batch.select([f.name for f in self.schema.keys])
        with_nulls = [f.name for f in self.schema.keys if batch.column(f.name).null_count]
        for name in with_nulls:
            self._add(f"key field {name!r} has nulls", group)
        before = [self.last] if self.last is not None else []
        whole = pa.Table.from_batches([*before, keys]).combine_chunks()
        if not is_ascending([combined(column) for column in whole.columns]):
            self._add("its rows are not in key order", group)
        # A slice would keep the whole batch in memory.
        self.last = keys.slice(keys.num_rows - 1).take(pa.array([0]))
        self._check_bounds(batch, group)
        if self.key_filter is not None and not with_nulls:
            hashes = hash_rows(self.schema, [batch])
            may_hold = self.key_filter.may_hold_ascending(
                hashes, lambda row: encode_row(self.schema, batch, row)
            )
            if not may_hold.all():
                self._add("its key filter denies keys that it holds", group)
        self.rows += batch.num_rows
        names = [f.name for f in self.schema.row_keys]
        only = batch.select(names)
        for partition, _ in self.expected.partitions:
            self.inside[partition.id] += rows_in_region(only, names, partition.region).num_rows

    def faults(self) -> Iterator[FileFault]:
        yield from self.first_faults.values()
        file = self.expected.file
        if not self.is_whole:
            return
        if self.rows != file.rows:
            yield FileFault(file.path, f"it has {self.rows} rows: the state says {file.rows}")
        for partition, rows in self.expected.partitions:
            if self.inside[partition.id] != rows:
                yield FileFault(
                    file.path,
                    f"{self.inside[partition.id]} of its rows are in partition {partition.id}: "
                    f"the state says {rows}",
                )

    def _check_values(self, batch: pa.RecordBatch, group: int) -> bool:
        """Adds a fault of each field with invalid values. Returns whether the keys are valid."""
        are_keys_valid = True
        for each in self.schema.fields:
            column = batch.column(each.name)
            try:
                # Nulls in keys are a fault of their own.
                is_nullable = each.nullable or each in self.schema.keys
                check_field(column, replace(each, nullable=is_nullable))
            except UnfitError:
                rows = cast_column(column, each)[1]
                row = min(rows)
                text = f"row {self.rows + row + 1}: field {each.name!r}: {rows[row]}"
                fault = FileFault(self.expected.file.path, text, group)
                self.first_faults.setdefault(f"values of {each.name}", fault)
                are_keys_valid &= each not in self.schema.keys
        return are_keys_valid

    def _check_bounds(self, batch: pa.RecordBatch, group: int) -> None:
        file = self.expected.file
        bounds = zip(self.schema.row_keys, file.smallest_key, file.largest_key, strict=True)
        for each, low, high in bounds:
            ends = pc.min_max(as_key_column(batch.column(each.name))).as_py()
            if ends["min"] is not None and (ends["min"] < low or high < ends["max"]):
                text = f"values of {each.name!r} are outside of the bounds that the state has"
                self._add(text, group)

    def _add(self, fault: str, group: int) -> None:
        self.first_faults.setdefault(fault, FileFault(self.expected.file.path, fault, group))


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def find_damage(
    schema: Schema, files: Iterable[DataFile], root: DataRoot, settings: EngineSettings
) -> DataError | None:
    """Returns the error of the first file that is unreadable or lacks rows, None if all are whole.

    Errors of a merge do not name the file, so each one is verified and read separately, with the
    rows that newer ones hide.
    """
    schema = replace(schema, latest=None)
    for file in files:
        url = root.url_of(file.path)
        try:
            damage = check_bytes(root, file.path)
            if damage is not None:
                return damage
            each = MergeInput(url, bytes=file.bytes, schema_version=file.schema_version)
            batches = merge(MergeRequest(schema, (each,)), settings)
            rows = sum(batch.num_rows for batch in batches)
        except (DataError, StateMovedOnError) as cause:
            return DataError(f"data file {file.path}: {cause}")
        if rows != file.rows:
            return DataError(f"data file {file.path} has {rows} rows (expected {file.rows})")
    return None
