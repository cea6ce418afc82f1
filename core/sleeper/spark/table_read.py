"""`read_table`: a table as a DataFrame, by Spark's own Parquet reader where no merge is needed.

Spark reads data files faster than Python can pass rows on, prunes columns and pushes filters down.
Files that it cannot read alone are read in Python, and the union of both is the table. Tables whose
rows need a merge or processing are read by the format `sleeper`. The DataFrame has the same rows
either way.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.utils import is_remote

from sleeper.errors import SleeperError, StateMovedOnError
from sleeper.instance import OpenTable
from sleeper.partitions.region import Range, Region
from sleeper.query.distributed.files import FileGroup, FileRead, plan_file_read
from sleeper.query.distributed.plan import Part
from sleeper.query.hold import SharedHold, take_shared_hold
from sleeper.query.service import read_schema
from sleeper.renewal import Renewal
from sleeper.schema.key_values import python_key_value
from sleeper.schema.model import Field, KeyValue, PrimitiveType, Schema, smallest_key_value
from sleeper.spark.data_source import (
    READ_OWNER,
    PartReader,
    SleeperDataSource,
    SleeperReader,
    register,
)
from sleeper.spark.options import (
    READ_OPTIONS,
    InstancePlace,
    Options,
    cached_instance,
    check_options,
    quote_name,
    read_as_of,
    read_instance,
    read_partition_bytes,
    read_query,
    read_table_name,
    to_spark,
)
from sleeper.spark.session import is_spark_error, mark_errors, run_this_python
from sleeper.spark.variants import json_names, reads_variants
from sleeper.spark.versions import has_data_sources

_CHECKS_PER_HOLD = 6
# Spark expands these in paths.
_PATTERN = re.compile(r"[*?\[\]{}\\]")
# A file without Spark's own metadata has dates and times in the calendar of today.
_READ_OPTIONS = {
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "mergeSchema": "false",
    "recursiveFileLookup": "false",
}


def read_table(
    spark: SparkSession, table: str, instance: str | None = None, **options: object
) -> DataFrame:
    """Returns a table as a DataFrame of one version, planned at the call.

    The options are those of `spark.read.format("sleeper")`, such as `range='["A", "M"]'` or
    `columns="city,day"`. Rows have no order. Spark reads the data files with its own Parquet
    reader, if the table shows all rows and has no filter, aggregation or iterator. It then reads
    only the columns that are used, and filters on any column skip row groups. All columns are
    nullable. Python reads files of which rows are deleted, files of other fields, and the smaller
    files of a table that is written faster than compacted. Otherwise, and if that is all files,
    the DataFrame is that of the format `sleeper`, or on PySpark 3.5, which has no formats in
    Python, one with the same partitions. A hold keeps the version for `sleeper.query.hold.seconds`,
    and longer while this application runs jobs.

    Raises `InvalidRequestError` for an unknown or invalid option, and `NotFoundError` if there is
    no such table.
    """
    if has_data_sources():
        register(spark)
    else:
        run_this_python(spark)
    texts = {name: str(value) for name, value in options.items()}
    texts |= {"table": table} | ({} if instance is None else {"instance": instance})
    check_options(texts, READ_OPTIONS)
    has_variants = reads_variants(texts)
    texts.pop("json", None)
    frame = _read(spark, texts)
    if not has_variants:
        return frame
    schema = read_schema(_open(texts).instance, table, read_as_of(texts))
    names = [name for name in frame.columns if name in json_names(schema)]
    return frame.withColumns({name: f.parse_json(f.col(quote_name(name))) for name in names})


def _read(spark: SparkSession, texts: Options) -> DataFrame:
    read = _plan(spark, texts)
    if read is not None:
        return _read_files(spark, texts, read)
    if has_data_sources():
        return spark.read.format("sleeper").options(**texts).load()
    return _read_by_map(spark, texts)


def _read_by_map(spark: SparkSession, options: Options) -> DataFrame:
    """Returns what the format `sleeper` would, with the same partitions."""
    schema = SleeperDataSource(dict(options)).schema()
    reader = SleeperReader(options, schema)
    return _map_parts(spark, reader.part_reader, reader.parts)


def _map_parts(spark: SparkSession, reader: PartReader, parts: Sequence[Part]) -> DataFrame:
    """Returns the rows of the parts, each in a partition of its own."""
    if not parts:
        return spark.createDataFrame([], reader.declared)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with mark_errors():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from reader.read(parts[number])

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, reader.declared)


def _plan(spark: SparkSession, options: Options) -> FileRead | None:
    """Returns the read by Spark's own reader; None if it is impossible."""
    if is_remote():
        return None
    opened = _open(options)
    ports = opened.instance
    if ports.queries.engine().settings.verifies_checksums:
        return None
    if not _can_read(spark, ports.storage.root.url_of("")):
        return None
    if any(bucket.server is not None for bucket in ports.storage.root.buckets):
        return None
    schema = read_schema(ports, opened.ref.name, read_as_of(options))
    query, part_bytes = read_query(options, schema), read_partition_bytes(options)
    read = plan_file_read(opened, query, READ_OWNER, part_bytes)
    if read is not None and read.hold is not None:
        _keep(spark, opened, read.hold)
    return read


def _open(options: Options) -> OpenTable:
    return cached_instance(read_instance(options)).table(read_table_name(options))


def _can_read(spark: SparkSession, url: str) -> bool:
    """Returns whether Spark has a file system for the URL, and takes its name literally."""
    if _PATTERN.search(url):
        return False
    scheme, separator, _ = url.partition("://")
    if not separator:
        return True
    session: Any = spark
    try:
        configuration = session._jsparkSession.sessionState().newHadoopConf()
        session._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, configuration)
    except Exception as error:
        if not is_spark_error(error):
            raise
        return False
    return True


def _read_files(spark: SparkSession, options: Options, read: FileRead) -> DataFrame:
    columns = read_query(options, read.schema).columns
    declared = to_spark(read.schema, columns)
    if not read.groups:
        return spark.createDataFrame([], declared)
    root = _open(options).instance.storage.root
    frames = [_group_frame(spark, root.url_of, read.schema, group) for group in read.groups]
    whole = reduce(DataFrame.union, frames)
    stored = whole if columns is None else whole.select(*map(quote_name, columns))
    if not read.parts:
        return stored
    place = InstancePlace.plan(read_instance(options))
    return stored.union(_map_parts(spark, PartReader(place, read.rest, declared), read.parts))


def _group_frame(
    spark: SparkSession, url_of: Callable[[str], str], schema: Schema, group: FileGroup
) -> DataFrame:
    paths = [_as_path(url_of(path)) for path in group.paths]
    reader = spark.read.schema(to_spark(schema, None)).options(**_READ_OPTIONS)
    frame = reader.parquet(*paths)
    return frame if group.regions is None else frame.where(_within(schema, group.regions))


def _as_path(url: str) -> str:
    # Without a scheme, Spark would look in its default file system.
    return url if "://" in url else f"file://{url}"


def _within(schema: Schema, regions: Sequence[Region]) -> Column:
    """Returns the condition of the rows in any of the regions."""
    return reduce(lambda a, b: a | b, [_in_region(schema, region) for region in regions])


def _in_region(schema: Schema, region: Region) -> Column:
    pairs = zip(schema.row_keys, region.ranges, strict=True)
    parts = [part for field, within in pairs for part in _in_range(field, within)]
    return reduce(lambda a, b: a & b, parts, f.lit(True))


def _in_range(field: Field, within: Range) -> list[Column]:
    key = f.col(quote_name(field.name))
    parts = []
    if within.min != smallest_key_value(field):
        parts.append(key >= _literal(field, within.min))
    if within.max is not None:
        parts.append(key < _literal(field, within.max))
    return parts


def _literal(field: Field, value: KeyValue) -> Column:
    match field.type:
        case PrimitiveType.TIMESTAMP:
            return f.timestamp_micros(f.lit(value))
        case PrimitiveType.DATE:
            return f.date_from_unix_date(f.lit(value))
    return f.lit(python_key_value(field, value))


@dataclass
class DriverHold:
    """Keeps a shared hold while the application runs jobs, because Spark's readers cannot."""

    table: OpenTable
    hold: SharedHold
    is_running: Callable[[], bool]

    def start(self) -> None:
        """Renews the hold in a daemon thread, until it has expired."""
        name = f"hold of version {self.hold.version} for Spark"
        period_seconds = self.hold.seconds / _CHECKS_PER_HOLD
        Renewal(name, self.renew, period_seconds, ends_on=SleeperError).start()

    def renew(self) -> None:
        """Renews the hold if it is due and a job runs. StateMovedOnError if it has expired."""
        clock, hold = self.table.instance.clock, self.hold
        if clock() >= hold.until_ms:
            raise StateMovedOnError(f"no job of Spark has needed version {hold.version}")
        if self.is_running():
            self.hold = take_shared_hold(
                self.table.state, hold.version, hold.seconds, clock, hold.owner
            )


def _keep(spark: SparkSession, table: OpenTable, hold: SharedHold) -> None:
    tracker = spark.sparkContext.statusTracker()
    DriverHold(table, hold, lambda: bool(tracker.getActiveJobsIds())).start()
