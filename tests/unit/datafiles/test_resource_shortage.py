"""A lack of files, memory or disk is unavailable, not a fault of the request."""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from sleeper.admin.tables import create_table_from_files, read_split_points, read_text
from sleeper.bulk_import.splits import InputSplit, sample_split
from sleeper.datafiles.engine.errors import engine_errors
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.leaf_keys import sample_keys
from sleeper.datafiles.merge.plan import merge
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.datafiles.merge.sort import RowSort
from sleeper.datafiles.sources.files import RowChecker, find_source_files
from sleeper.datafiles.sources.parquet import read_parquet
from sleeper.datafiles.sources.text import read_csv, read_json_lines
from sleeper.datafiles.verification import ExpectedFile, verify_file
from sleeper.errors import DataError, InvalidRequestError, UnavailableError
from sleeper.jobs.process import is_alive, this_process
from sleeper.query.sql.text import planning_errors
from sleeper.user_code.loading import BUILT_IN_CODE
from tests.tables.data_table import LONG_SCHEMA, DataTable
from tests.wheels import make_wheel


@contextmanager
def no_more_files() -> Iterator[None]:
    """This process cannot open another file."""
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """One file of each format with the same row."""
    rows = pa.table({"key": pa.array([1], pa.int64()), "v": ["one"]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    csv.write_csv(rows, tmp_path / "rows.csv")
    (tmp_path / "rows.json").write_text('{"key": 1, "v": "one"}\n')
    (tmp_path / "points.txt").write_text("1\n")
    return tmp_path


def checker() -> RowChecker:
    return RowChecker(LONG_SCHEMA, "rows", None)


READERS: dict[str, Callable[[Path], object]] = {
    "parquet": lambda folder: list(read_parquet(folder / "rows.parquet", checker())),
    "csv": lambda folder: list(read_csv(folder / "rows.csv", checker())),
    "json": lambda folder: list(read_json_lines(folder / "rows.json", checker())),
    "folder": lambda folder: find_source_files([folder]),
    "bulk import": lambda folder: sample_split(
        InputSplit(folder / "rows.parquet", (0,), 1), LONG_SCHEMA, 10
    ),
    "split points": lambda folder: read_split_points(LONG_SCHEMA, folder / "points.txt"),
    "schema": lambda folder: create_table_from_files(None, "t", folder / "points.txt"),  # type: ignore[arg-type]
    "query": lambda folder: read_text(folder / "points.txt", "query file"),
}


@pytest.mark.parametrize("reader", READERS)
def test_unopenable_user_file_is_unavailable(files: Path, reader: str) -> None:
    with no_more_files(), pytest.raises(UnavailableError, match=r"(?i)too many open files"):
        READERS[reader](files)


def test_unopenable_wheel_is_unavailable(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    with no_more_files(), pytest.raises(UnavailableError, match=r"(?i)too many open files"):
        BUILT_IN_CODE.registry.add([wheel])


def test_unreadable_or_missing_user_file_is_refused(files: Path) -> None:
    (files / "rows.parquet").unlink()
    with pytest.raises(InvalidRequestError):
        READERS["parquet"](files)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM, errno.ESTALE])
def test_disk_error_during_a_read_of_text_is_unavailable(
    files: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        def read(self, _size: int = -1) -> bytes:
            raise OSError(number, os.strerror(number))

        def close(self) -> None:
            pass

    monkeypatch.setattr("sleeper.datafiles.sources.text.open_text", lambda _path: Failing())
    for reader in ("csv", "json"):
        with pytest.raises(UnavailableError, match=r"rows\.(csv|json): .*(?i:error|memory|stale)"):
            READERS[reader](files)


def test_unopenable_data_file_is_unavailable(table: DataTable) -> None:
    (file,) = table.ingest(range(10))
    region = table.leaves()[0].region
    assert verify_file(table.root, table.schema, ExpectedFile(file)) == []
    with no_more_files():
        with pytest.raises(UnavailableError):
            sample_keys(table.root, table.schema, file, region)
        with pytest.raises(UnavailableError):
            verify_file(table.root, table.schema, ExpectedFile(file))


def test_engine_without_file_descriptors_is_unavailable(table: DataTable) -> None:
    (file,) = table.ingest(range(10))
    request = MergeRequest(table.schema, (MergeInput(table.root.url_of(file.path)),))
    settings = EngineSettings(table.folder / "spill", threads=1)
    assert sum(batch.num_rows for batch in merge(request, settings)) == 10
    with no_more_files(), pytest.raises(UnavailableError, match=r"(?i)too many open files"):
        list(merge(request, settings))


class PanicException(BaseException):
    """As the engine's bindings call it."""


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        pa.ArrowMemoryError("malloc of size 4096 failed"),
        Exception("External error: Too many open files in system (os error 23)"),
        Exception("Arrow error: Io error: Input/output error (os error 5)"),
        Exception("IO error: Disk quota exceeded (os error 122)"),
        PanicException(
            'failed to spawn thread: Os { code: 11, kind: WouldBlock, message: "Resource '
            'temporarily unavailable" }'
        ),
    ],
)
def test_resource_errors_of_the_engine_are_unavailable(error: BaseException) -> None:
    with pytest.raises(UnavailableError), engine_errors():
        raise error
    if isinstance(error, Exception):
        with pytest.raises(UnavailableError), planning_errors([]):
            raise error


@pytest.mark.parametrize(
    "text", ["Parquet error: Invalid footer", "Is a directory (os error 21)", "code: 7"]
)
def test_other_errors_of_the_engine_are_data_errors(text: str) -> None:
    with pytest.raises(DataError), engine_errors():
        raise Exception(text)


def test_process_check_survives_a_lack_of_files() -> None:
    me = this_process()
    with no_more_files(), pytest.raises(UnavailableError):
        is_alive(me)
    assert is_alive(me)


def test_a_run_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    batch = pa.record_batch({"key": pa.array([1], pa.int64()), "v": ["one"]})
    settings = EngineSettings(tmp_path, memory_bytes=1)
    with closing(RowSort(LONG_SCHEMA, tmp_path, settings)) as rows:
        rows.add_batches([])
        with no_more_files(), pytest.raises(UnavailableError, match="cannot write sorted rows"):
            rows.add_batches([batch] * 5)
        assert list(tmp_path.iterdir()) == []
