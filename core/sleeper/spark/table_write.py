"""`write_table`: adds the rows of a DataFrame to a table, without a Python data source.

The writer of the format `sleeper` does the work: its tasks run in a `mapInArrow`, which returns the
files of one attempt of each task to the driver.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, to_json

from sleeper.bulk_import.exchange import new_file_from_json, new_file_to_json
from sleeper.errors import InvalidRequestError
from sleeper.ingest.run import IngestResult
from sleeper.ingest.service import annotate_errors
from sleeper.spark.options import cast_batches, quote_name, to_arrow
from sleeper.spark.session import mark_errors, raise_task_errors, run_this_python
from sleeper.spark.variants import variant_names
from sleeper.spark.writer import PartWritten, SleeperWriter

_FILE = "file string"
_MODES = ("append", "overwrite")


def write_table(
    frame: DataFrame,
    table: str,
    instance: str | None = None,
    *,
    mode: str = "append",
    job_id: str | None = None,
    op_column: str | None = None,
) -> IngestResult:
    """Adds the rows of a DataFrame to a table in one transaction, on PySpark 3.5 and newer.

    It does what `frame.write.format("sleeper")` does: columns are matched by name, checked and
    cast. `mode` is `append`, or `overwrite` for a snapshot table, and `op_column` is the column of
    the rows' operations. With a `job_id`, a repeated call within 30 days changes nothing and does
    not compute the DataFrame. `instance` is a folder or `aws:INSTANCE_ID`, by default
    SLEEPER_INSTANCE.

    Raises `InvalidRequestError` for columns or values that do not fit, for another mode, and for an
    id that another request has. After `UnavailableError` the rows may or may not be added: repeat
    the call with the job id in the error's message.
    """
    if mode not in _MODES:
        raise InvalidRequestError(f"mode={mode!r} (expected one of {', '.join(_MODES)})")
    texts = {"instance": instance, "table": table, "jobId": job_id, "opColumn": op_column}
    options = {name: text for name, text in texts.items() if text is not None}
    for name in variant_names(frame.schema):
        frame = frame.withColumn(name, to_json(col(quote_name(name))))
    writer = SleeperWriter(options, frame.schema, mode == "overwrite")
    if writer.is_done:
        return writer.commit_parts([])
    run_this_python(frame.sparkSession)
    try:
        with raise_task_errors():
            rows = frame.mapInArrow(_make_write(writer, to_arrow(frame.schema)), _FILE).collect()
        files = tuple(new_file_from_json(row[0]) for row in rows)
    except Exception:
        writer.abort([])
        raise
    with annotate_errors(writer.job_id, "job_id"):
        return writer.commit_parts([PartWritten(files)])


def _make_write(
    writer: SleeperWriter, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for `mapInArrow` that writes rows, and yields the entries of the files."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with mark_errors():
            # Spark passes times in the time zone of the session.
            written = writer.write(cast_batches(batches, schema))
            texts = [new_file_to_json(new) for new in written.files]
            yield pa.RecordBatch.from_pydict({"file": pa.array(texts, pa.string())})

    return write
