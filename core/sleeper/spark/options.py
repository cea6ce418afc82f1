"""Options of the format `sleeper`, conversions of schemas, and the instance of a Python process.

Names of options are case-insensitive. Unknown ones are refused, because a misspelt range would
read the whole table. A Python process of Spark runs many tasks one after another and opens the
instance once.
"""

import csv
import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sleeper import INSTANCE_VARIABLE
from sleeper.datafiles.arrow import with_text
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.instance import Instance
from sleeper.opening import open_instance
from sleeper.partitions.json import (
    first_field_region,
    key_value_from_json,
    region_from_json,
)
from sleeper.partitions.region import Region, key_region
from sleeper.properties.deployed import CONFIG_BUCKET
from sleeper.query.request import Query, regions_of_keys
from sleeper.query.run import result_schema
from sleeper.retries import retry_as_job
from sleeper.schema.model import Key, Schema
from sleeper.spark.variants import json_names, to_variants, variant_names, with_variants
from sleeper.spark.versions import to_utc_arrow_schema
from sleeper.statestore.version import Version, parse_version_text

_TABLE = ("instance", "table")
_ROWS = ("keys", "range", "ranges", "region", "regions", "columns", "partitionBytes", "json")
READ_OPTIONS = (*_TABLE, *_ROWS, "asOf")
FOLLOW_OPTIONS = (
    *_TABLE,
    *_ROWS,
    "startingVersion",
    "follower",
    "maxFilesPerTrigger",
    "deletedRows",
)
CHANGES_OPTIONS = (
    *_TABLE,
    "startingVersion",
    "follower",
    "maxTransactionsPerTrigger",
    "partitionBytes",
)
WRITE_OPTIONS = (*_TABLE, "jobId", "opColumn")
# Spark passes its own option to the sink.
SINK_OPTIONS = (*_TABLE, "checkpointLocation", "opColumn")

_PARTITION_BYTES = 32 * 1024**2
_FILES_PER_TRIGGER = 1000
_TRANSACTIONS_PER_TRIGGER = 1000

Options = Mapping[str, str]


def check_options(options: Options, known: tuple[str, ...]) -> None:
    """InvalidRequestError if an option is unknown."""
    names = {name.lower() for name in known}
    for name in options:
        if name.lower() not in names:
            raise InvalidRequestError(
                f"unknown option {name!r} (expected one of {', '.join(known)})"
            )


def read_instance(options: Options) -> str:
    """Returns the place of the instance, by default SLEEPER_INSTANCE."""
    named = options.get("instance") or os.environ.get(INSTANCE_VARIABLE)
    if not named:
        raise InvalidRequestError(
            "option 'instance' is missing: name a folder, or aws:INSTANCE_ID, or set "
            f"{INSTANCE_VARIABLE}"
        )
    return absolute(named)


def read_table_name(options: Options) -> str:
    """Returns the table's name."""
    named = options.get("table")
    if not named:
        raise InvalidRequestError("option 'table' is missing: the name of a table")
    return named


def read_query(options: Options, schema: Schema) -> Query:
    """Returns a query for the union of all keys, ranges and regions, or for all rows."""
    regions = tuple(_regions(options, schema))
    names = ("keys", "range", "ranges", "region", "regions")
    is_restricted = any(options.get(name) is not None for name in names)
    return Query(
        regions if is_restricted else None, read_columns(options), None, read_as_of(options)
    )


def read_columns(options: Options) -> tuple[str, ...] | None:
    """Returns the columns, which are names in CSV or a JSON list; None is all columns."""
    text = options.get("columns")
    if text is None:
        return None
    if text.lstrip().startswith("["):
        names = [str(name) for name in _json_list("columns", text)]
    else:
        names = _names_of_csv(text)
    if not any(names):
        raise InvalidRequestError(f"option 'columns': {text!r} contains no column")
    if len(set(names)) < len(names):
        raise InvalidRequestError(f"option 'columns': {text!r} contains a column twice")
    return tuple(names)


def _names_of_csv(text: str) -> list[str]:
    try:
        rows = list(csv.reader([text], strict=True, skipinitialspace=True))
    except csv.Error as error:
        raise InvalidRequestError(f"option 'columns': {text!r}: {error}") from error
    return [name.strip() for row in rows for name in row]


def read_partition_bytes(options: Options) -> int:
    """Returns the bytes of data files per Spark partition: of small leaves, or part of one."""
    return _number(options, "partitionBytes", 0) or _PARTITION_BYTES


def read_files_per_trigger(options: Options) -> int:
    """Returns the approximate maximum of files in a micro-batch."""
    return _number(options, "maxFilesPerTrigger", 1) or _FILES_PER_TRIGGER


def read_transactions_per_trigger(options: Options) -> int:
    """Returns the maximum of transactions with changes in a micro-batch."""
    return _number(options, "maxTransactionsPerTrigger", 1) or _TRANSACTIONS_PER_TRIGGER


def read_starting_version(options: Options) -> int | None:
    """Returns the version after which a new stream starts; None is the newest."""
    if options.get("startingVersion", "").lower() == "latest":
        return None
    return _number(options, "startingVersion", 0) or 0


def read_includes_deleted(options: Options) -> bool:
    """Returns whether a new stream may return rows that were deleted before it started."""
    text = options.get("deletedRows", "refuse")
    if text not in ("refuse", "include"):
        raise InvalidRequestError(f"option 'deletedRows': {text!r} (expected refuse or include)")
    return text == "include"


def read_as_of(options: Options) -> Version | None:
    """Returns the version to read; None is the newest."""
    text = options.get("asOf")
    if text is None:
        return None
    try:
        return parse_version_text(text)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"option 'asOf': {error}") from error


def _number(options: Options, name: str, least: int) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        raise InvalidRequestError(f"option {name!r}: {text!r} is not an integer") from None
    if number < least:
        raise InvalidRequestError(f"option {name!r}: {number} is less than {least}")
    return number


def _regions(options: Options, schema: Schema) -> Iterator[Region]:
    keys = options.get("keys")
    if keys is not None:
        yield from regions_of_keys(schema, [_key(schema, k) for k in _json_list("keys", keys)])
    for name in ("range", "region"):
        text = options.get(name)
        if text is not None:
            yield _region(schema, name, _json(name, text))
    for name in ("ranges", "regions"):
        text = options.get(name)
        if text is not None:
            for each in _json_list(name, text):
                yield _region(schema, name, each)


def _key(schema: Schema, raw: Any) -> Key:
    """Parses a key: a list with a value per row key field, or the value of a single field."""
    values = raw if isinstance(raw, list) else [raw]
    if len(values) != len(schema.row_keys):
        key_region(schema, values)  # reports the number of values expected
    return tuple(key_value_from_json(f, v) for f, v in zip(schema.row_keys, values, strict=True))


def _region(schema: Schema, name: str, raw: Any) -> Region:
    """Parses `[min, max]` over the first row key field, where either may be null, or an object
    (docs/formats.md, "Regions and ranges").
    """
    if isinstance(raw, dict):
        return region_from_json(schema, raw)
    if not isinstance(raw, list) or len(raw) != 2:
        raise InvalidRequestError(
            f"option {name!r}: {json.dumps(raw)} is neither [min, max] nor a region such as "
            f'{{"{schema.row_keys[0].name}": {{"min": …, "max": …}}}}'
        )
    field = schema.row_keys[0]
    low, high = (None if end is None else key_value_from_json(field, end) for end in raw)
    return first_field_region(schema, low, high)


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidRequestError(f"option {name!r}: {text!r} is not JSON: {error}") from error


def _json_list(name: str, text: str) -> list[Any]:
    values = _json(name, text)
    if not isinstance(values, list):
        raise InvalidRequestError(f"option {name!r}: {text!r} is not a JSON list")
    return values


def to_spark(
    schema: Schema, columns: tuple[str, ...] | None, has_variants: bool = False
) -> StructType:
    """Returns the DataFrame schema of the columns; None is all columns.

    Fields of `JSONType` are text, or variants.
    """
    for name in columns or ():
        schema.field(name)
    kinds = from_arrow_schema(with_text(result_schema(schema, columns)))
    return with_variants(kinds, schema) if has_variants else kinds


def to_arrow(schema: StructType) -> pa.Schema:
    """Returns the Arrow schema in which Spark exchanges rows of the DataFrame schema."""
    return to_utc_arrow_schema(schema)


def check_columns(declared: StructType, schema: Schema) -> tuple[str, ...]:
    """Returns the column names of a DataFrame schema, which a user may have declared.

    InvalidRequestError if the table lacks a column, or has one of another type.
    """
    table_schema, variants = to_spark(schema, None), variant_names(declared)
    for field in declared.fields:
        schema.field(field.name)
        if field.name in variants and field.name in json_names(schema):
            continue
        expected = table_schema[field.name].dataType.simpleString()
        declared_type = field.dataType.simpleString()
        if declared_type != expected:
            raise InvalidRequestError(
                f"field {field.name!r} is declared as {declared_type} (expected {expected})"
            )
    return tuple(declared.fieldNames())


def cast_batches(batches: Iterable[pa.RecordBatch], target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the batches with exactly the schema: Spark also compares names inside types."""
    for batch in batches:
        columns = [_cast(column, kind) for column, kind in zip(batch.columns, target, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=target)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    if pa.types.is_struct(field.type) and not pa.types.is_struct(column.type):
        return to_variants(column, field.type, field.name)
    return column.cast(field.type)


_AWS_PREFIX = "aws:"


@lru_cache(maxsize=8)
def cached_instance(where: str, config_bucket: str | None = None) -> Instance:
    """Returns the instance, opened once per process, which retries requests as jobs do."""
    retry_as_job()
    return open_instance(where, config_bucket=config_bucket)


@dataclass(frozen=True, slots=True)
class InstancePlace:
    """The instance of a plan, which the tasks of executors open.

    The name of an AWS instance's config bucket travels with the plan, because a task would need
    another request, and another permission, to find its account.
    """

    where: str
    config_bucket: str | None = None

    @classmethod
    def plan(cls, where: str) -> "InstancePlace":
        """Returns the place of an instance, which the driver opens."""
        if not where.startswith(_AWS_PREFIX):
            return cls(where)
        return cls(where, cached_instance(where).properties().get(CONFIG_BUCKET))

    def open(self) -> Instance:
        """Returns the instance, opened once per process.

        Errors have the host, because other executors may see the folder, or have credentials.
        """
        bucket = () if self.config_bucket is None else (self.config_bucket,)
        try:
            return cached_instance(self.where, *bucket)
        except (InvalidRequestError, NotFoundError) as error:
            expected = (
                "credentials of AWS on all executors, such as a role of their machines"
                if self.where.startswith(_AWS_PREFIX)
                else "a folder that the driver and all executors see at the same path"
            )
            # Spark prints the traces of causes too, which say no more.
            raise type(error)(
                f"{error} on host {socket.gethostname()} (expected {expected})"
            ) from None


def absolute(where: str) -> str:
    """Returns the instance's place for processes with other working folders."""
    return where if where.startswith(_AWS_PREFIX) else os.path.abspath(where)


def quote_name(name: str) -> str:
    """Returns a name for Spark, which would read a dot as a field of a structure."""
    return "`" + name.replace("`", "``") + "`"
