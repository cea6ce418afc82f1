"""The port of inputs that have complete datasets: tables at a version, stashes, files."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from sleeper.adjunct.contents.writers import RowWriter
from sleeper.adjunct.definition import Layout
from sleeper.adjunct.engines.engine import Writes
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.settings import EngineSettings, make_spill_folder
from sleeper.datafiles.merge.sort import sort_batches
from sleeper.schema.model import Field, PrimitiveType, Schema

LayoutSource = Callable[[], Layout | None]
"""Returns the form of keys and values."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """All keys and values of one dataset.

    `layout` returns their form; None until `writes` was read, if it follows from the data. If
    `is_sorted`, the keys are in strictly ascending order. `positions` are those after the dataset.
    """

    name: str
    writes: Iterator[Writes]
    layout: LayoutSource
    is_sorted: bool
    positions: dict[str, str]


class DatasetInput(Protocol):
    """An input of datasets, each of which replaces the one before.

    Raises UnavailableError if a service does not respond, NotFoundError if the input does not
    exist, and DataError or InvalidRequestError for data that cannot be read or has no valid keys.
    """

    def newest(self) -> str | None:
        """Returns the name of the newest complete dataset, None if there is none."""

    def is_current(self, positions: Mapping[str, str]) -> bool:
        """Returns whether the positions are of this input, and not of a former one of its name."""
        del positions  # a dataset is named by its content
        return True

    def open(self, dataset: str) -> AbstractContextManager[Dataset]:
        """Opens a dataset. StateMovedOnError if it does not exist any more: ask for the newest."""


_SORT_BYTES = 256 * 1024**2


def sort_settings(spill: Path) -> EngineSettings:
    """Returns the settings of `sort_rows` with temporary files in a folder."""
    return EngineSettings(spill, memory_bytes=_SORT_BYTES)


def make_dataset(
    name: str,
    batches: Iterator[pa.RecordBatch],
    schema: Schema,
    writer: RowWriter,
    settings: EngineSettings,
) -> Dataset:
    """Returns the dataset of rows in any order, of which the last of a key counts."""
    if writer.is_sorted:
        batches = sort_rows(batches, schema, settings)
    return Dataset(name, writer.put_all(batches), writer.layout, writer.is_sorted, {})


def sort_rows(
    batches: Iterable[pa.RecordBatch], schema: Schema, settings: EngineSettings
) -> Iterator[pa.RecordBatch]:
    """Yields the rows in the order of their row keys; those of one key keep their order.

    Batches have the Arrow schema of `schema`. Memory is bounded by the settings, the rest is on
    disk in their spill folder.
    """
    name = "place"
    while any(each.name == name for each in schema.fields):
        name += "_"
    row_number = Field(name, PrimitiveType.LONG)
    numbered = Schema(schema.row_keys, (row_number,), (*schema.sort_keys, *schema.values))
    make_spill_folder(settings.spill_folder)
    for batch in sort_batches(_number_rows(batches, numbered, name), numbered, settings):
        yield batch.drop_columns([name])


def _number_rows(
    batches: Iterable[pa.RecordBatch], numbered: Schema, name: str
) -> Iterator[pa.RecordBatch]:
    target, first = arrow_schema(numbered), 0
    for batch in batches:
        numbers = pa.array(np.arange(first, first + batch.num_rows))
        columns = [numbers if each == name else batch.column(each) for each in target.names]
        yield pa.RecordBatch.from_arrays(columns, schema=target)
        first += batch.num_rows
