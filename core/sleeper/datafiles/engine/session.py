"""DataFusion sessions with bounded memory, and functions over one column."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext, col
from datafusion.expr import Expr
from datafusion.object_store import AmazonS3

from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.errors import UnavailableError
from sleeper.storage.bucket import Bucket, is_s3_url, quoted_s3_url

BATCH_ROWS = 8192
"""The engine's default number of rows of a batch."""

_table_numbers = itertools.count()
# The first read of a file's end. DataFusion's default of half a megabyte exceeds most footers,
# and each reading thread keeps part of it (docs/design/0002-merge.md).
_FOOTER_BYTES = "65536"


def open_session(
    settings: EngineSettings,
    partitions: int = 1,
    batch_rows: int = BATCH_ROWS,
    options: Mapping[str, str] = MappingProxyType({}),
) -> SessionContext:
    """Returns a session that executes plans in `partitions` partitions.

    Batches have up to `batch_rows` rows. `options` are more options of DataFusion.
    """
    config = (
        SessionConfig()
        .with_target_partitions(partitions)
        .with_batch_size(batch_rows)
        .set("datafusion.execution.parquet.pushdown_filters", "true")
        .set("datafusion.execution.collect_statistics", "false")
        .set("datafusion.execution.parquet.metadata_size_hint", _FOOTER_BYTES)
        .set("datafusion.optimizer.repartition_file_scans", "false")
    )
    for name, value in options.items():
        config = config.set(f"datafusion.{name}", value)
    return create_session(config, settings)


def create_session(config: SessionConfig, settings: EngineSettings) -> SessionContext:
    """Returns a session of the configuration within the settings' memory, folder and buckets."""
    runtime = (
        RuntimeEnvBuilder()
        .with_disk_manager_specified(str(settings.spill_folder))
        .with_fair_spill_pool(settings.memory_bytes)
    )
    try:
        session = SessionContext(config, runtime)
    except Exception as error:  # DataFusion raises bare exceptions
        raise UnavailableError(
            f"cannot use the spill folder {settings.spill_folder}: {error}"
        ) from error
    register_buckets(session, settings.buckets)
    return session


def register_buckets(session: SessionContext, buckets: Iterable[Bucket]) -> None:
    """Allows the session to read objects of the buckets, with their credentials of now.

    The engine does not renew those of a profile, so a longer use of a session calls this again.
    """
    for bucket in buckets:
        keys = bucket.credentials.current() if bucket.credentials else None
        store = AmazonS3(
            bucket.name,
            region=bucket.region,
            access_key_id=keys.access_key_id if keys else None,
            secret_access_key=keys.secret_access_key if keys else None,
            session_token=keys.session_token if keys else None,
            endpoint=bucket.server,
            allow_http=bucket.allows_http,
        )
        session.register_object_store(f"s3://{bucket.name}/", store)


def limit_footer_cache(session: SessionContext, bytes_max: int) -> None:
    """Limits the session's cache of Parquet footers."""
    session.sql(f"SET datafusion.runtime.metadata_cache_limit = '{bytes_max // 1024}K'").collect()


def new_table_name() -> str:
    """Returns a quoted table name that is unique in the process.

    It contains a slash, which table names of an instance cannot.
    """
    return f'"/{next(_table_numbers)}"'


def engine_url(file: str) -> str:
    """Returns the URL of a local file or S3 object for DataFusion.

    DataFusion interprets brackets, stars and question marks in a plain path as a pattern.
    """
    return quoted_s3_url(file) if is_s3_url(file) else Path(file).absolute().as_uri()


def map_column(column: pa.Array, function: Callable[[Expr], Expr], kind: pa.DataType) -> pa.Array:
    """Returns the function's value for each value of the column, in the column's order.

    Raises the bare exceptions of DataFusion.
    """
    session, name = _column_session(), new_table_name()
    rows = pa.RecordBatch.from_arrays([column], ["value"])
    # A session keeps each table that it was given until the table is deregistered.
    frame = session.create_dataframe([[rows]], name=name)
    try:
        batches = frame.select(function(col("value"))).collect()
    finally:
        session.deregister_table(name)
    return pa.chunked_array([b.column(0).cast(kind) for b in batches], kind).combine_chunks()


@cache
def _column_session() -> SessionContext:
    # DataFusion divides large batches. Several partitions would return the parts in any order.
    return SessionContext(SessionConfig().with_target_partitions(1))
