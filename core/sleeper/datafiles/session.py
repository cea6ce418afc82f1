"""DataFusion sessions with bounded memory, and its errors as ours."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from datafusion import DataFrame, ExecutionPlan, RuntimeEnvBuilder, SessionConfig, SessionContext

from sleeper.errors import DataError, SleeperError, StateMovedOnError, UnavailableError

_table_numbers = itertools.count()
# What is read of a file's end at first. The engine's own half a megabyte is more than most
# footers, and each thread that reads files keeps some of it (see `merge`).
_FOOTER_BYTES = "65536"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What bounds one run of the engine.

    `memory_bytes` is DataFusion's pool; beyond it sorts spill to `spill_folder`, a local
    folder that exists. `merge_files_max` is how many sorted inputs one merge opens.
    """

    spill_folder: Path
    memory_bytes: int = 1024**3
    merge_files_max: int = 64
    threads: int = 2


def open_session(settings: EngineSettings, partitions: int = 1) -> SessionContext:
    """A session whose plans run in so many partitions within the settings' memory."""
    config = (
        SessionConfig()
        .with_target_partitions(partitions)
        .set("datafusion.execution.parquet.pushdown_filters", "true")
        .set("datafusion.execution.collect_statistics", "false")
        .set("datafusion.execution.parquet.metadata_size_hint", _FOOTER_BYTES)
        .set("datafusion.optimizer.repartition_file_scans", "false")
    )
    runtime = (
        RuntimeEnvBuilder()
        .with_disk_manager_specified(str(settings.spill_folder))
        .with_fair_spill_pool(settings.memory_bytes)
    )
    return SessionContext(config, runtime)


def limit_footer_cache(session: SessionContext, bytes_max: int) -> None:
    """Bounds what the session remembers of files' footers, which it reads once for each file."""
    session.sql(f"SET datafusion.runtime.metadata_cache_limit = '{bytes_max // 1024}K'").collect()


def new_table_name() -> str:
    """A name that no other table of any session of this process has.

    With a slash, which no table of an instance can have in its name, and so in quotes.
    """
    return f'"/{next(_table_numbers)}"'


def engine_url(path: str | Path, is_folder: bool = False) -> str:
    """A local file or folder as the engine takes it to the letter.

    In a plain path it reads brackets, stars and question marks as a pattern.
    """
    return Path(path).absolute().as_uri() + ("/" if is_folder else "")


def stream(
    session: SessionContext, frame: DataFrame, files: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """The frame's batches as they are made. Raises only this product's errors.

    `files` are those that the plan must scan, each by itself. The engine passes over a file
    that is gone or empty without a word, so its scans are counted: StateMovedOnError if a
    file is gone, DataError if it has no bytes.
    """
    with engine_errors():
        plan = frame.execution_plan()
        if files and _count_scans(plan) < len(files):
            raise _missing_scan(files)
        if plan.partition_count != 1:
            raise DataError(f"the plan has {plan.partition_count} partitions, not one")
        for batch in session.execute(plan, 0):
            yield batch.to_pyarrow()


def check_present(files: Iterable[str]) -> None:
    """For a plan whose scans cannot be counted: looks at local files after it was made.

    One that is there now, of a name that is never used again, was there when it was made; if
    it goes later, reading it fails.
    """
    for file in files:
        path = Path(file)
        if not path.exists() or path.stat().st_size == 0:
            raise _missing_scan([file])


def _count_scans(plan: ExecutionPlan) -> int:
    children = plan.children()
    if children:
        return sum(_count_scans(child) for child in children)
    return int("file_groups={1 group:" in plan.display())


def _missing_scan(files: Sequence[str]) -> SleeperError:
    for file in files:
        path = Path(file)
        if path.exists() and path.stat().st_size == 0:
            return DataError(f"data file {file} is empty: it has no bytes at all")
        if not path.exists():
            return StateMovedOnError(f"a data file is gone: {file}")
    return StateMovedOnError(f"a data file is gone, one of {', '.join(files[:10])}")


@contextlib.contextmanager
def engine_errors() -> Iterator[None]:
    """Translates what DataFusion and Arrow raise.

    StateMovedOnError if a file is gone, UnavailableError if memory or disk ran out,
    DataError for a file that cannot be read.
    """
    try:
        yield
    except (SleeperError, GeneratorExit):
        raise
    except OSError as error:
        raise UnavailableError(f"cannot read or write: {error}") from error
    except Exception as error:
        # DataFusion raises bare exceptions, so the text is all there is to go by.
        text = str(error)
        if "not found" in text or "No such file" in text:
            raise StateMovedOnError(f"a data file is gone: {text}") from error
        if "No space left" in text or "os error 28" in text:
            raise UnavailableError(f"the disk is full: {text}") from error
        if "Resources exhausted" in text:
            raise UnavailableError(f"the memory that was allowed is too little: {text}") from error
        raise DataError(f"data could not be read: {text}") from error
    except BaseException as error:
        # A torn file can make the engine panic, which is no Exception.
        if type(error).__name__ == "PanicException":
            raise DataError(f"data could not be read, the engine panicked: {error}") from error
        raise
