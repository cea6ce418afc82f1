"""The anchor: DataFusion on its own, reading, ordering and writing Parquet."""

from pathlib import Path

from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext
from datafusion.dataframe import DataFrame, ParquetWriterOptions

from sleeper.datafiles.write.engine_file import writer_options
from sleeper.datafiles.write.file import FileSettings
from sleeper.datafiles.write.layout import ColumnLayout, Encoding

# Two views of text and a long.
_ROW_BYTES = 40


def open_raw_session(spill: Path, memory_bytes: int, partitions: int) -> SessionContext:
    """Opens a DataFusion session with its defaults and the same memory limit as ours."""
    spill.mkdir(parents=True, exist_ok=True)
    config = SessionConfig().with_target_partitions(partitions)
    runtime = (
        RuntimeEnvBuilder()
        .with_disk_manager_specified(str(spill))
        .with_fair_spill_pool(memory_bytes)
    )
    return SessionContext(config, runtime)


def write_like_ours(frame: DataFrame, path: Path) -> None:
    """Writes the frame of `SCHEMA` to one file with the layout that our writer would choose.

    Further columns have DataFusion's encodings.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    settings = FileSettings()
    layouts = (
        ColumnLayout("key", Encoding.DELTA_BYTE_ARRAY, "zstd"),
        ColumnLayout("sort", Encoding.PLAIN, "none"),
        ColumnLayout("value", Encoding.DELTA_LENGTH_BYTE_ARRAY, "zstd"),
    )
    group_rows = settings.row_group_rows(1, _ROW_BYTES)
    options = writer_options(layouts, settings.pages, group_rows)
    frame.write_parquet_with_options(str(path), options)


def write_raw(frame: DataFrame, path: Path, use_sleeper_settings: bool) -> None:
    """Writes the frame to one file with DataFusion's settings, or with ours and plain encodings.

    Plain encodings take DataFusion less time for random rows than dictionaries.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not use_sleeper_settings:
        frame.write_parquet(str(path))
        return
    settings = FileSettings()
    options = ParquetWriterOptions(
        # The level that Arrow takes when none is given, as our writer does.
        compression=f"{settings.compression_codec}(1)",
        data_pagesize_limit=settings.page_bytes,
        dictionary_enabled=False,
        max_row_group_size=settings.row_group_rows_max,
    )
    frame.write_parquet_with_options(str(path), options)
