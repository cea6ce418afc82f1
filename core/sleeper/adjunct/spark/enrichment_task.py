"""Enrichment in executors: opens the store of a task and adds its values to batches of rows.

A Python process of Spark runs many tasks one after another, and keeps the stores that it opened.
The stores are on the local disk, where all processes of a machine share them.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from sleeper.adjunct.columns.lookup import ColumnLookup
from sleeper.adjunct.definition import Partition, StoreDefinition
from sleeper.adjunct.enrichment.dataset_versions import open_dataset
from sleeper.adjunct.inputs import open_dataset_input
from sleeper.adjunct.inputs.dataset import DatasetInput
from sleeper.clock import system_clock
from sleeper.errors import UnavailableError
from sleeper.retries import retry_as_job
from sleeper.spark.options import cached_instance
from sleeper.storage.disk import locking_file
from sleeper.temporary import temporary_folder

PARTITION_COLUMN = "~partition"
"""The last column of a row for a partitioned store: the partition of its key."""

_LOOKUPS = 32
_SPILL = "spill"
_BATCHES = "micro-batches"
# Local properties of Spark's tasks of a micro-batch.
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A store as executors open it: what it has, the instance of its input, and its folder.

    `where` is None for an input without an instance, and `path` for the folder of temporary files.
    """

    definition: StoreDefinition
    where: str | None
    path: str | None

    def open_input(self) -> DatasetInput:
        """Returns the input. InvalidRequestError if it has no datasets."""
        folder = temporary_folder("adjunct") if self.path is None else Path(self.path)
        return open_dataset_input(
            self.definition, lambda: cached_instance(self.where or ""), folder / _SPILL
        )

    def newest(self) -> str:
        """Returns the newest dataset of the input. UnavailableError if none is complete."""
        newest = self.open_input().newest()
        if newest is None:
            raise UnavailableError(
                f"{self.definition.input} has no complete dataset yet (expected one)"
            )
        return newest

    def folder(self) -> Path:
        """Returns the folder of stores on this machine, which is created.

        UnavailableError if it cannot be, or belongs to another user.
        """
        if self.path is None:
            return temporary_folder("adjunct")
        folder = Path(self.path)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UnavailableError(
                f"cannot create the folder of stores {folder}: {error.strerror}"
            ) from error
        return folder

    def of_partition(self, partition: Partition) -> "StoreLocation":
        """Returns the store of a partition."""
        name = f"{self.definition.name}-{partition.index}-of-{partition.count}"
        return replace(self, definition=replace(self.definition, name=name, partition=partition))


@dataclass(frozen=True, slots=True)
class Enrichment:
    """Adds values of a store to rows. Spark sends it to its executors.

    `dataset` is that of all tasks; None is the newest at the start of a micro-batch. `keys` are the
    columns of keys, `fields` those of values, and `schema` has the columns that are added.
    """

    location: StoreLocation
    dataset: str | None
    keys: tuple[str, ...]
    fields: tuple[str, ...]
    schema: pa.Schema
    is_inner: bool
    partitions: int | None

    def enrich(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows with the values of their keys."""
        retry_as_job()
        dataset = self.dataset or _newest_of_micro_batch(self.location)
        for batch in batches:
            if self.partitions is None:
                yield self._add(batch, _open(self.location, dataset, self.fields))
                continue
            rows, numbers = batch.select(batch.schema.names[:-1]), batch.column(PARTITION_COLUMN)
            for index in numbers.unique().to_pylist():
                location = self.location.of_partition(Partition(index, self.partitions))
                part = rows.filter(pc.equal(numbers, index))
                yield self._add(part, _open(location, dataset, self.fields))

    def _add(self, rows: pa.RecordBatch, lookup: ColumnLookup) -> pa.RecordBatch:
        matches = lookup.find(rows.select(list(self.keys)))
        added = [
            column if column.type == kind.type else column.cast(kind.type)
            for column, kind in zip(matches.values.columns, self.schema, strict=True)
        ]
        schema = pa.schema([*rows.schema, *self.schema])
        enriched = pa.RecordBatch.from_arrays([*rows.columns, *added], schema=schema)
        return enriched.filter(matches.is_present) if self.is_inner else enriched


@lru_cache(maxsize=_LOOKUPS)
def _open(location: StoreLocation, dataset: str, fields: tuple[str, ...]) -> ColumnLookup:
    """Returns the lookup in a dataset, opened once per process."""
    definition = location.definition
    version = open_dataset(
        definition, location.folder(), location.open_input, dataset, system_clock
    )
    return ColumnLookup(definition.name, version, fields, is_fixed=True)


def _newest_of_micro_batch(location: StoreLocation) -> str:
    """Returns the dataset that all tasks of a micro-batch on this machine read.

    The first of them chooses the newest one.
    """
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(_QUERY_ID)
    batch = None if context is None else context.getLocalProperty(_BATCH_ID)
    if query is None or batch is None:
        return location.newest()
    folder = location.folder() / _BATCHES
    folder.mkdir(exist_ok=True)
    digest = hashlib.sha256(f"{location.definition.name} {query}".encode()).hexdigest()[:16]
    with locking_file(folder / digest) as descriptor, open(descriptor, "r+", closefd=False) as file:
        chosen = json.loads(file.read() or "{}")
        if chosen.get("batch") != batch:
            chosen = {"batch": batch, "dataset": location.newest()}
            file.seek(0)
            file.truncate()
            file.write(json.dumps(chosen))
    return str(chosen["dataset"])
