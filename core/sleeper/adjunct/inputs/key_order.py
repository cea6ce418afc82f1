"""Rows of a dataset in key order, for inputs whose rows have none."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.settings import EngineSettings, make_spill_folder
from sleeper.datafiles.merge.sort import sort_batches
from sleeper.schema.model import Field, PrimitiveType, Schema


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
    place = Field(name, PrimitiveType.LONG)
    numbered = Schema(schema.row_keys, (place,), (*schema.sort_keys, *schema.values))
    make_spill_folder(settings.spill_folder)
    for batch in sort_batches(_number_rows(batches, numbered, name), numbered, settings):
        yield batch.drop_columns([name])


def _number_rows(
    batches: Iterable[pa.RecordBatch], numbered: Schema, name: str
) -> Iterator[pa.RecordBatch]:
    target, first = arrow_schema(numbered), 0
    for batch in batches:
        places = pa.array(np.arange(first, first + batch.num_rows))
        columns = [places if each == name else batch.column(each) for each in target.names]
        yield pa.RecordBatch.from_arrays(columns, schema=target)
        first += batch.num_rows
