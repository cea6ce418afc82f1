"""Missing, empty and torn inputs of a merge."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.plan import merge
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.errors import DataError, StateMovedOnError
from sleeper.schema.model import Field, PrimitiveType, Schema

SCHEMA = Schema((Field("id", PrimitiveType.LONG),))


def merge_files(tmp_path: Path, *paths: Path, files_max: int = 64) -> int:
    (tmp_path / "spill").mkdir(exist_ok=True)
    settings = EngineSettings(tmp_path / "spill", merge_files_max=files_max)
    request = MergeRequest(SCHEMA, tuple(MergeInput(str(p)) for p in paths))
    return sum(batch.num_rows for batch in merge(request, settings))


@pytest.fixture
def present(tmp_path: Path) -> Path:
    path = tmp_path / "present.parquet"
    pq.write_table(pa.table({"id": pa.array(range(10), pa.int64())}), path)
    return path


@pytest.mark.parametrize("files_max", [2, 64])
def test_missing_input_is_state_moved_on(tmp_path: Path, present: Path, files_max: int):
    assert merge_files(tmp_path, present, present, present, files_max=files_max) == 30
    removed_paths = tmp_path / "gone.parquet"
    with pytest.raises(StateMovedOnError, match=r"gone\.parquet"):
        merge_files(tmp_path, present, removed_paths, present, files_max=files_max)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1 no file at all PAR1", b"x" * 1000])
def test_torn_file_is_a_data_error(tmp_path: Path, present: Path, content: bytes):
    torn = tmp_path / "torn.parquet"
    torn.write_bytes(content)
    with pytest.raises(DataError):
        merge_files(tmp_path, present, torn)


def test_truncated_file_is_a_data_error(tmp_path: Path, present: Path):
    torn = tmp_path / "torn.parquet"
    torn.write_bytes(present.read_bytes()[:-20])
    with pytest.raises(DataError):
        merge_files(tmp_path, torn)
