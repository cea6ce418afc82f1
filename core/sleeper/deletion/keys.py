"""Deletes of many keys: a run writes them to a key file, and commits a delete that names it.

The delete's id identifies the run. A second run is already done before any work, and the key file
of a run that could not commit is an orphan.
"""

import contextlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.settings import spill_folder
from sleeper.datafiles.key_files import keys_schema
from sleeper.datafiles.key_values import from_key_values
from sleeper.datafiles.merge.sort import RowSort
from sleeper.datafiles.sidecars.row_hashes import hash_rows
from sleeper.datafiles.sources.any_format import read_file
from sleeper.datafiles.sources.files import (
    RowChecker,
    find_source_files,
    read_batches,
)
from sleeper.datafiles.write.key_file import write_key_file
from sleeper.deletion.service import (
    DeleteResult,
    check_delete_id,
    check_regions,
    delete_table_rows,
)
from sleeper.errors import ConflictError, InvalidRequestError, UnavailableError
from sleeper.files import KeyFile, new_key_path
from sleeper.instance import Instance, OpenTable
from sleeper.partitions.region import Region, key_of_region
from sleeper.properties.instance import SORT_MEMORY_BYTES
from sleeper.runs.commit import commit_until_settled
from sleeper.runs.engine import engine_settings, file_settings
from sleeper.schema.model import Key, Schema
from sleeper.statestore.transactions.codec import encode, hash_request
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.transaction import Status, new_transaction_id

REGION_BYTES_MAX = 64 * 1024
"""The keys of a larger delete are written to a key file."""

_KEYS_PER_BATCH = 50_000
OnRows = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class DeleteProgress:
    """Callbacks that receive the numbers of rows read and of keys written."""

    rows_read: OnRows = lambda _: None
    keys_written: OnRows = lambda _: None


_NO_PROGRESS = DeleteProgress()


def delete_rows(
    instance: Instance, table_name: str, regions: Sequence[Region], delete_id: str | None = None
) -> DeleteResult:
    """Deletes rows of a table by name, as `delete_table_rows` does, with any number of keys.

    More keys than the log should hold are written to a key file.
    """
    table = instance.table(table_name)
    keys, others = _split_keys(table, regions)
    if not keys:
        return delete_table_rows(table, others, delete_id)
    source = {"keys": hash_request(repr(keys)).hex()}
    run = _Run(table, delete_id, source, others)
    return run.execute(lambda schema: _listed_keys(schema, keys))


def write_delete(
    table: OpenTable,
    regions: Sequence[Region],
    delete_id: str,
    request: str,
    region_bytes_max: int | None = None,
) -> DeleteRows:
    """Returns a delete of rows in the regions, which the caller commits.

    Keys that would take more bytes in the log, by default 64 KiB, are written to a key file.
    """
    keys, others = _split_keys(table, regions, region_bytes_max)
    if not keys:
        return DeleteRows(tuple(others), request=request, id=delete_id)
    with table.state.reading() as now:
        run_start_ms = now.run_start(table.instance.clock())
        schema = keys_schema(now.schema)
    file = _write_keys(table, run_start_ms, schema, _listed_keys(schema, keys), lambda _: None)
    return DeleteRows(tuple(others), file, run_start_ms, request, id=delete_id)


def _split_keys(
    table: OpenTable, regions: Sequence[Region], region_bytes_max: int | None = None
) -> tuple[Sequence[Key], Sequence[Region]]:
    """Returns the distinct keys to write to a key file, in order, and the other regions."""
    if _estimate_bytes(regions) <= (region_bytes_max or REGION_BYTES_MAX):
        return (), regions
    with table.state.reading() as state:
        schema = state.schema
    keys, others = set[Key](), list[Region]()
    for region in regions:
        key = key_of_region(schema, region)
        if key is None:
            others.append(region)
        else:
            keys.add(key)
    return sorted(keys), others


def _estimate_bytes(regions: Sequence[Region]) -> int:
    """Returns about the size of the regions in the log."""
    values = (each.min for region in regions for each in region.ranges)
    return sum(30 + (2 * len(v) if isinstance(v, str | bytes) else 20) for v in values)


def delete_keys_from(
    instance: Instance,
    table_name: str,
    paths: Sequence[str],
    regions: Sequence[Region] = (),
    delete_id: str | None = None,
    progress: DeleteProgress = _NO_PROGRESS,
) -> DeleteResult:
    """Deletes the rows with a key in the files, and those of the regions, in one transaction.

    The files have a column for each row key field, and perhaps others, which are ignored.
    InvalidRequestError with file, row and field for a key that does not fit the schema, and for
    files without a key. The other errors are those of `delete_rows`.
    """
    table = instance.table(table_name)
    names = [instance.storage.sources.job_name(path) for path in paths]

    def read(schema: Schema) -> Iterator[pa.RecordBatch]:
        line_bytes_max = engine_settings(instance, SORT_MEMORY_BYTES).line_bytes_max
        for path in find_source_files([instance.storage.sources.open(name) for name in names]):
            checker = RowChecker(
                schema, str(path), None, ignores_extra_columns=True, line_bytes_max=line_bytes_max
            )
            yield from read_file(path, checker)

    return _Run(table, delete_id, {"keys from": names}, regions).execute(read, progress)


def delete_key_rows(
    instance: Instance,
    table_name: str,
    batches: Iterable[pa.RecordBatch],
    regions: Sequence[Region] = (),
    delete_id: str | None = None,
    compares_keys: bool = True,
) -> DeleteResult:
    """Deletes the rows with a key in the Arrow batches, which may exceed memory.

    As `delete_keys_from`. A repeated id is done if the keys are the same, in any order. Without
    `compares_keys` it is done whatever the keys are, and they are not read.
    """
    keys = _KeyFingerprint()

    def read(schema: Schema) -> Iterator[pa.RecordBatch]:
        checker = RowChecker(schema, "(in-memory keys)", None)
        names = [field.name for field in schema.row_keys]

        def select() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                checker.check_columns(batch.schema.names, ignores_extra=True)
                yield batch.select(names)

        return keys.follow(schema, read_batches(select(), checker))

    source = keys if compares_keys else "keys in memory"
    return _Run(instance.table(table_name), delete_id, source, regions).execute(read)


def _listed_keys(schema: Schema, keys: Sequence[Key]) -> Iterator[pa.RecordBatch]:
    kind = arrow_schema(schema)
    for start in range(0, len(keys), _KEYS_PER_BATCH):
        columns = zip(*keys[start : start + _KEYS_PER_BATCH], strict=True)
        arrays = [from_key_values(c, t) for c, t in zip(columns, kind.types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=kind)


def _write_keys(
    table: OpenTable,
    run_start_ms: int,
    schema: Schema,
    batches: Iterator[pa.RecordBatch],
    on_written: OnRows,
) -> KeyFile | None:
    """Writes the keys to a new key file. Returns None if there are none."""
    engine = engine_settings(table.instance, SORT_MEMORY_BYTES)
    with (
        spill_folder(engine, "delete") as folder,
        contextlib.closing(RowSort(schema, folder, engine)) as keys,
    ):
        keys.add_batches(batches)
        path = new_key_path(table.ref.id, run_start_ms)
        settings = file_settings(table.properties())
        root = table.instance.storage.root
        return write_key_file(root, path, keys, settings, on_written)


class _KeyFingerprint:
    """A fingerprint of keys, whatever their order, which is complete when they have been read."""

    def __init__(self) -> None:
        self._rows = 0
        self._sums = [0, 0]

    def follow(self, schema: Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the batches, and adds their keys."""
        for batch in batches:
            hashes = hash_rows(schema, [batch])
            self._rows += batch.num_rows
            for power, values in enumerate((hashes, hashes * hashes)):
                self._sums[power] = (self._sums[power] + int(values.sum())) % 2**64
            yield batch

    def value(self) -> Mapping[str, object]:
        """Returns the fingerprint as JSON."""
        return {"rows": self._rows, "sums": self._sums}


class _Run:
    """A run of a delete. `source` describes where its keys are from, or is their fingerprint."""

    def __init__(
        self,
        table: OpenTable,
        delete_id: str | None,
        source: object | _KeyFingerprint,
        regions: Sequence[Region],
    ) -> None:
        if delete_id is not None:
            check_delete_id(delete_id)
        self._table = table
        self._id = delete_id or new_transaction_id()
        self._regions = tuple(check_regions(regions)) if regions else ()
        self._source = source

    def execute(
        self,
        read: Callable[[Schema], Iterator[pa.RecordBatch]],
        progress: DeleteProgress = _NO_PROGRESS,
    ) -> DeleteResult:
        """Writes the keys and commits the delete, unless an earlier run has."""
        state, instance = self._table.state, self._table.instance
        with state.reading() as now:
            run_start_ms = now.run_start(instance.clock())
            schema = keys_schema(now.schema)
            applied = now.jobs.applied(self._id, DeleteRows.kind)
        batches = _counted(read(schema), progress.rows_read)
        if applied is not None:
            if isinstance(self._source, _KeyFingerprint):
                deque(batches, maxlen=0)
            if applied.fingerprint != hash_request(self._request()):
                raise ConflictError(
                    f"cannot delete from table {self._table.ref.name!r}: id {self._id} was used "
                    f"by transaction {applied.number} with other content"
                )
            return DeleteResult(self._id, applied.number, len(self._regions), True)
        file = _write_keys(self._table, run_start_ms, schema, batches, progress.keys_written)
        if file is None and not self._regions:
            raise InvalidRequestError("no rows to delete (expected at least one key)")
        request = self._request()
        delete = DeleteRows(self._regions, file, run_start_ms, request, id=self._id)
        try:
            (outcome,) = commit_until_settled(lambda: state.commit(delete))
        except UnavailableError as error:
            raise UnavailableError(
                f"{error}; delete not confirmed: repeating it with the id {self._id!r} deletes no "
                "row twice"
            ) from error
        if outcome.refused:
            raise ConflictError(
                f"cannot delete from table {self._table.ref.name!r}: {outcome.reason}"
            )
        done = outcome.status is Status.ALREADY_DONE
        count = 0 if file is None or done else file.keys
        return DeleteResult(self._id, outcome.number, len(self._regions), done, count)

    def _request(self) -> str:
        source = self._source
        keys = source.value() if isinstance(source, _KeyFingerprint) else source
        boxes = hash_request(encode(DeleteRows(self._regions, id="")).line).hex()
        return json.dumps({"delete": keys, "regions": boxes})


def _counted(batches: Iterator[pa.RecordBatch], count: OnRows) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        count(batch.num_rows)
        yield batch
