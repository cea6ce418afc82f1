"""Enrichment of DataFrames: values of an adjunct store, added by key.

The driver chooses the dataset of a DataFrame and its columns. Executors look up whole batches in a
local copy of the dataset, which they share with all tasks of their machine.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit, pmod, xxhash64
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sleeper.adjunct.columns.lookup import KeyColumns
from sleeper.adjunct.columns.values import ValueColumns
from sleeper.adjunct.definition import Layout, StoreDefinition
from sleeper.adjunct.inputs.dataset import DatasetInput
from sleeper.adjunct.inputs.table import TableInput
from sleeper.adjunct.spark.enrichment_task import PARTITION_COLUMN, Enrichment, StoreLocation
from sleeper.datafiles.arrow import with_text
from sleeper.errors import InvalidRequestError
from sleeper.spark.options import quote_name, read_instance, to_arrow
from sleeper.spark.session import run_this_python
from sleeper.spark.versions import assign_by_number

_OWNER = "spark enrich"
_PARTITIONS_MAX = 100_000
_OTHERS = re.compile(r"[^A-Za-z0-9]+")
_NAME_LENGTH = 24


@dataclass(frozen=True, slots=True)
class StoreSource:
    """The store that executors look up values in.

    `input` is `table:NAME`, `stash:DESTINATION#TABLE` or `files:PATH`. `instance` is that of a
    table, a folder or `aws:INSTANCE_ID`, by default SLEEPER_INSTANCE. `path` is a folder on the
    local disk of each executor, by default one of temporary files.
    """

    input: str
    instance: str | None = None
    path: str | None = None


def enrich(
    df: DataFrame,
    store: StoreSource | str,
    on: str | Sequence[str] | Mapping[str, str],
    fields: Sequence[str] | Mapping[str, str] | None = None,
    *,
    prefix: str = "",
    how: str = "left",
    partitions: int | None = None,
) -> DataFrame:
    """Returns the DataFrame with values of a store, looked up by key.

    `store` is a `StoreSource`, or the text of its input. `on` names the columns of the key, in the
    order of the key's fields, or maps each key field to a column. `fields` names the values to add,
    or maps them to names of columns; the default is all. `prefix` is put before these names. With
    `how="left"`, a row whose key is not in the store has nulls; with `how="inner"`, it is left out.

    A batch DataFrame keeps the dataset that was the newest one at the call: all tasks read it, and
    so do repeated computations. A micro-batch of a stream reads the newest one at its start.

    `partitions` is for a store that is large: the DataFrame is repartitioned by key into so many
    partitions, and each executor has only the keys of those that it computes.

    Raises `InvalidRequestError` for columns or fields that do not exist, clash, or have another
    type, `NotFoundError` if the input does not exist, and `UnavailableError` if it has no complete
    dataset or does not respond.
    """
    source = store if isinstance(store, StoreSource) else StoreSource(store)
    _check_options(how, partitions)
    run_this_python(df.sparkSession)
    location, dataset, layout = _plan(source, is_kept=not df.isStreaming)
    keys = KeyColumns(location.definition.name, layout)
    columns = _key_columns(df, on, keys)
    names = _value_names(fields, layout, prefix)
    _check_clashes(df, names.values())
    values = with_text(ValueColumns(location.definition.name, layout, list(names)).schema)
    added = from_arrow_schema(pa.schema([each.with_name(names[each.name]) for each in values]))
    target = StructType([*df.schema.fields, *added.fields])
    if partitions is not None:
        df = _repartition(df, columns, keys, partitions)
    kept, is_inner = None if df.isStreaming else dataset, how == "inner"
    enrichment = Enrichment(
        location, kept, tuple(columns), tuple(names), to_arrow(added), is_inner, partitions
    )

    def add_values(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return enrichment.enrich(batches)

    return df.mapInArrow(add_values, target)


def _check_options(how: str, partitions: int | None) -> None:
    if how not in ("left", "inner"):
        raise InvalidRequestError(f"how={how!r} (expected 'left' or 'inner')")
    if partitions is not None and not 1 <= partitions <= _PARTITIONS_MAX:
        raise InvalidRequestError(f"partitions={partitions} (expected 1 to {_PARTITIONS_MAX})")


def _repartition(df: DataFrame, columns: list[str], keys: KeyColumns, count: int) -> DataFrame:
    """Returns the DataFrame divided by key, with the number of the partition of each row."""
    types = [each.dataType for each in from_arrow_schema(keys.schema)]
    typed = [col(quote_name(c)).cast(t) for c, t in zip(columns, types, strict=True)]
    number = pmod(xxhash64(*typed), lit(count)).cast("int")
    return assign_by_number(df.withColumn(PARTITION_COLUMN, number), count, PARTITION_COLUMN)


def _plan(source: StoreSource, is_kept: bool) -> tuple[StoreLocation, str, Layout]:
    """Returns the store, its newest dataset, and the form of this one."""
    where = None
    if source.input.startswith("table:"):
        where = read_instance({} if source.instance is None else {"instance": source.instance})
    name = _OTHERS.sub("-", source.input.partition(":")[2]).strip("-")[:_NAME_LENGTH]
    location = StoreLocation(StoreDefinition(name or "store", source.input), where, source.path)
    opened = location.open_input()
    dataset = location.newest()
    identity = [source.input, where or ""]
    if isinstance(opened, TableInput):
        if is_kept:
            opened.keep(dataset, _OWNER)
        # A table of the same name may be created again.
        identity.append(str(opened.table.ref.id))
    digest = hashlib.sha256("\n".join(identity).encode()).hexdigest()[:16]
    definition = StoreDefinition(f"{location.definition.name}-{digest}", source.input)
    layout = _find_layout(opened, dataset)
    return StoreLocation(definition, where, source.path), dataset, layout


def _find_layout(source: DatasetInput, dataset: str) -> Layout:
    if isinstance(source, TableInput):
        layout = source.layout(int(dataset))
    else:
        with source.open(dataset) as opened:
            layout = opened.layout()
    if layout is None or layout.values is None:
        raise InvalidRequestError("the store's values are documents (expected rows of a table)")
    return layout


def _key_columns(
    df: DataFrame, on: str | Sequence[str] | Mapping[str, str], keys: KeyColumns
) -> list[str]:
    """Returns the columns of the key, in the order of its fields."""
    fields = keys.schema.names
    if isinstance(on, Mapping):
        if sorted(on) != sorted(fields):
            raise InvalidRequestError(
                f"on has the key fields {', '.join(map(str, on))} (expected {', '.join(fields)})"
            )
        columns = [on[field] for field in fields]
    else:
        columns = [on] if isinstance(on, str) else list(on)
    for column in columns:
        if column not in df.columns:
            raise InvalidRequestError(
                f"no column {column!r} (expected one of: {', '.join(df.columns)})"
            )
    types = to_arrow(StructType([df.schema[column] for column in columns]))
    keys.cast(pa.RecordBatch.from_pylist([], types))  # refuses columns of other types
    return columns


def _value_names(
    fields: Sequence[str] | Mapping[str, str] | None, layout: Layout, prefix: str
) -> dict[str, str]:
    """Returns the name of the column of each value field."""
    assert layout.values is not None
    if fields is None:
        fields = [each.name for each in layout.values]
    if isinstance(fields, str):
        raise InvalidRequestError(f"fields={fields!r} (expected a list of names)")
    named = dict(fields) if isinstance(fields, Mapping) else {name: name for name in fields}
    return {field: prefix + name for field, name in named.items()}


def _check_clashes(df: DataFrame, names: Iterable[str]) -> None:
    # Spark does not tell names apart by case.
    taken = {column.lower() for column in df.columns}
    for name in names:
        if name.lower() in taken:
            raise InvalidRequestError(
                f"column {name!r} exists already (expected a prefix, or fields with other names)"
            )
        taken.add(name.lower())
