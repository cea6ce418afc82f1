"""DataFusion sessions with bounded memory, and its errors as ours."""

import contextlib
import itertools
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from datafusion import DataFrame, ExecutionPlan, RuntimeEnvBuilder, SessionConfig, SessionContext
from datafusion.object_store import AmazonS3
from datafusion.plan import LogicalPlan

from sleeper.errors import (
    DataError,
    SleeperError,
    StateMovedOnError,
    UnavailableError,
    failure_of,
    is_transient,
)
from sleeper.storage.bucket import Bucket, is_s3_url, quoted_s3_url
from sleeper.storage.s3_file import s3_file

LINE_BYTES_MAX = 16 * 1024**2
"""How long a line of text may be, where nothing else is said."""

_table_numbers = itertools.count()
# What is read of a file's end at first. The engine's own half a megabyte is more than most
# footers, and each thread that reads files keeps some of it (see `merge`).
_FOOTER_BYTES = "65536"
_HEADS_AT_ONCE = 16
# The engine's S3 client when it gives up: after retries, or refused by the server.
_SIGNS_OF_NO_ANSWER = (
    "Generic S3 error",
    "HTTP error",
    "error sending request",
    "lacked the necessary privileges",
    "lacked valid authentication",
)
# The engine's own temporary files, whatever happened to them.
_IN_SPILL_FOLDER = re.compile(r"[/\\]datafusion-\w{6}([/\\]\.tmp|\W|$)")
# Of the engine's protobuf messages: a plan that is a scan of files; a file's URL in one.
_SCAN_TAG = b"\x0a"
_PATH_TAG = b"\x12"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What bounds one run of the engine.

    `memory_bytes` is DataFusion's pool; beyond it sorts spill to `spill_folder`, a local
    folder that exists. `merge_files_max` is how many sorted inputs one merge opens. Objects
    of S3 are read from `buckets` and no others. `line_bytes_max` is for text that is ingested.
    """

    spill_folder: Path
    memory_bytes: int = 1024**3
    merge_files_max: int = 64
    threads: int = 2
    buckets: tuple[Bucket, ...] = ()
    line_bytes_max: int = LINE_BYTES_MAX

    def new_spill_path(self, name: str) -> Path:
        """A path in the spill folder, which is made again if somebody removed it."""
        make_spill_folder(self.spill_folder)
        return self.spill_folder / name


def make_spill_folder(path: Path) -> None:
    """Makes the folder, not durably. UnavailableError if the disk refuses."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"cannot make the spill folder {path}: {error.strerror}") from error


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
    return session_within(config, settings)


def session_within(config: SessionConfig, settings: EngineSettings) -> SessionContext:
    """A session of that configuration, with the settings' memory, spill folder and buckets."""
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
    """Lets the session read the buckets' objects."""
    for bucket in buckets:
        keys = bucket.credentials
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
    """Bounds what the session remembers of files' footers, which it reads once for each file."""
    session.sql(f"SET datafusion.runtime.metadata_cache_limit = '{bytes_max // 1024}K'").collect()


def new_table_name() -> str:
    """A name that no other table of any session of this process has.

    With a slash, which no table of an instance can have in its name, and so in quotes.
    """
    return f'"/{next(_table_numbers)}"'


def engine_url(file: str) -> str:
    """A local file, or the URL of an object of S3, as the engine takes it to the letter.

    In a plain path it reads brackets, stars and question marks as a pattern.
    """
    return quoted_s3_url(file) if is_s3_url(file) else Path(file).absolute().as_uri()


def scan_files(
    session: SessionContext, files: Sequence[str], schema: pa.Schema | None = None
) -> DataFrame:
    """All rows of Parquet files of one schema as one table, in no order.

    The engine reads some of them at a time, however many there are, where a union of files
    would open all of them at once. Its interface takes one file or a folder, its plans take
    a list: so this is the plan of the first file with the others' URLs added.
    """
    first, *others = (engine_url(file) for file in files)
    name = new_table_name()
    session.register_parquet(name, first, schema=schema, file_extension="")
    frame = session.table(name)
    if others:
        plan = LogicalPlan.from_bytes(
            session, _with_files(frame.logical_plan().to_bytes(session), others)
        )
        frame = session.create_dataframe_from_logical_plan(plan)
    return frame


def _with_files(plan: bytes, urls: Sequence[str]) -> bytes:
    """The serialised scan of one file with more URLs: fields 1 and 2 of protobuf messages."""
    length, start = _varint_at(plan, 1)
    if plan[:1] != _SCAN_TAG or start + length != len(plan):
        raise AssertionError("the engine writes the scan of a file in another form")
    scan = plan[start:] + b"".join(
        _PATH_TAG + _varint(len(url)) + url for url in (u.encode() for u in urls)
    )
    return _SCAN_TAG + _varint(len(scan)) + scan


def _varint(number: int) -> bytes:
    digits = []
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


def _varint_at(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return number, at


def stream(
    session: SessionContext,
    frame: DataFrame,
    files: Sequence[str] = (),
    buckets: Sequence[Bucket] = (),
) -> Iterator[pa.RecordBatch]:
    """The frame's batches as they are made. Raises only this product's errors.

    `files` are those that the plan must scan, each by itself. The engine passes over a file
    that is gone or empty without a word, so its scans are counted: StateMovedOnError if a
    file is gone, DataError if it has no bytes.
    """
    with engine_errors():
        plan = frame.execution_plan()
        if files and _count_scans(plan) < len(files):
            raise _missing_scan(files, buckets)
        if plan.partition_count != 1:
            raise DataError(f"the plan has {plan.partition_count} partitions, not one")
        for batch in session.execute(plan, 0):
            yield batch.to_pyarrow()


def check_present(files: Sequence[str], buckets: Sequence[Bucket] = ()) -> None:
    """For a plan whose scans cannot be counted: looks at its files after it was made.

    One that is there now, of a name that is never used again, was there when it was made; if
    it goes later, reading it fails.
    """
    for file, size in _sizes(files, buckets):
        if not size:
            raise _missing_scan_of(file, size)


def _count_scans(plan: ExecutionPlan) -> int:
    children = plan.children()
    if children:
        return sum(_count_scans(child) for child in children)
    return int("file_groups={1 group:" in plan.display())


def _sizes(files: Sequence[str], buckets: Sequence[Bucket]) -> Iterator[tuple[str, int | None]]:
    """The bytes of each file, None if it is gone."""
    if not any(is_s3_url(file) for file in files):
        yield from ((file, _size(file, buckets)) for file in files)
        return
    with ThreadPoolExecutor(_HEADS_AT_ONCE, "object-sizes") as threads:
        yield from zip(files, threads.map(lambda file: _size(file, buckets), files), strict=True)


def _size(file: str, buckets: Sequence[Bucket]) -> int | None:
    if is_s3_url(file):
        return s3_file(file, buckets).size()
    try:
        return Path(file).stat().st_size
    except FileNotFoundError:
        return None


def _missing_scan_of(file: str, size: int | None) -> SleeperError:
    if size == 0:
        return DataError(f"data file {file} is empty: it has no bytes at all")
    return StateMovedOnError(f"a data file is gone: {file}")


def _missing_scan(files: Sequence[str], buckets: Sequence[Bucket]) -> SleeperError:
    for file, size in _sizes(files, buckets):
        if not size:
            return _missing_scan_of(file, size)
    return StateMovedOnError(f"a data file is gone, one of {', '.join(files[:10])}")


@contextlib.contextmanager
def spill_folder(settings: EngineSettings, what: str) -> Iterator[Path]:
    """A fresh folder on the disk that the engine spills to, gone afterwards."""
    folder = settings.spill_folder / f"{what}-{uuid.uuid4().hex}"
    make_spill_folder(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def engine_errors(memory_set_by: str | None = None) -> Iterator[None]:
    """Translates what DataFusion and Arrow raise. `memory_set_by` is the property that bounds it.

    StateMovedOnError if a file is gone, UnavailableError if memory or disk ran out,
    DataError for a file that cannot be read.
    """
    try:
        yield
    except (SleeperError, GeneratorExit):
        raise
    except FileNotFoundError as error:
        raise StateMovedOnError(f"a data file is gone: {error}") from error
    except OSError as error:
        raise UnavailableError(f"cannot read or write: {error}") from error
    except Exception as error:
        raise _error_of(error, memory_set_by) from error
    except BaseException as error:
        # A torn file can make the engine panic, which is no Exception.
        if type(error).__name__ == "PanicException":
            text = f"data could not be read, the engine panicked: {error}"
            raise failure_of(error, text, DataError) from error
        raise


def _error_of(error: Exception, memory_set_by: str | None) -> SleeperError:
    """DataFusion raises bare exceptions, so their text is all there is to go by."""
    text = str(error)
    if _IN_SPILL_FOLDER.search(text):
        return UnavailableError(f"the spill folder was removed or cannot be used: {text}")
    if "not found" in text or "No such file" in text:
        return StateMovedOnError(f"a data file is gone: {text}")
    if "No space left" in text or "os error 28" in text:
        return UnavailableError(f"the disk is full: {text}")
    if is_transient(error):
        return UnavailableError(f"cannot read or write: {text or type(error).__name__}")
    if any(sign in text for sign in _SIGNS_OF_NO_ANSWER):
        return UnavailableError(f"S3 does not answer: {text}")
    if "Resources exhausted" in text:
        allowed = f"{memory_set_by} allows" if memory_set_by else "was allowed"
        needed = text.rpartition("Resources exhausted: ")[2]
        return UnavailableError(f"the memory that {allowed} is too little: {needed}")
    return DataError(f"data could not be read: {text}")
