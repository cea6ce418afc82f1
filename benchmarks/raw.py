"""The anchor: DataFusion on its own, reading, ordering and writing Parquet."""

from pathlib import Path

from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext
from datafusion.dataframe import DataFrame, ParquetWriterOptions

from sleeper.datafiles.write.file import FileSettings


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
