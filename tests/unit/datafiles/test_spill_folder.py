"""Removal of the spill folder of a running process."""

import gc
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionContext, col

from sleeper.datafiles.engine.scan import stream_batches
from sleeper.datafiles.engine.session import open_session
from sleeper.datafiles.engine.settings import EngineSettings, spill_folder
from sleeper.errors import UnavailableError
from sleeper.query.engine import QueryEngine, QuerySettings
from sleeper.query.sql.session import open_sql_session

ROWS = 2_000_000


def sort(session: SessionContext) -> int:
    """Sorts more than the session's memory holds; returns the rows."""
    keys = pa.table({"k": np.random.default_rng(1).random(ROWS)})
    frame = session.create_dataframe([keys.to_batches(10_000)]).sort(col("k").sort())
    return sum(batch.num_rows for batch in stream_batches(session, frame))


@pytest.fixture
def settings(tmp_path: Path) -> EngineSettings:
    (tmp_path / "spill").mkdir()
    return EngineSettings(tmp_path / "spill", memory_bytes=40 * 1024**2, threads=1)


@pytest.mark.parametrize("is_made_again", [False, True])
def test_engine_recreates_a_removed_spill_folder(
    settings: EngineSettings, is_made_again: bool
) -> None:
    engine = QueryEngine(QuerySettings(settings))
    assert sort(engine.session) == ROWS
    assert engine.session is engine.session
    shutil.rmtree(settings.spill_folder)
    if is_made_again:
        settings.spill_folder.mkdir()
    assert sort(engine.session) == ROWS


def test_closed_engine_leaves_no_spill_files(
    settings: EngineSettings,
) -> None:
    engine = QueryEngine(QuerySettings(settings))
    assert engine.session is engine.session
    assert list(settings.spill_folder.iterdir()) != []
    del engine
    gc.collect()
    assert list(settings.spill_folder.iterdir()) == []


def test_spill_folder_removed_during_a_sort_is_unavailable(
    settings: EngineSettings,
) -> None:
    session = open_session(settings)
    shutil.rmtree(settings.spill_folder)
    with pytest.raises(UnavailableError, match="spill folder"):
        sort(session)


@pytest.mark.parametrize("resource", [open_session, open_sql_session])
def test_failed_creation_of_the_spill_folder_is_unavailable(
    settings: EngineSettings, resource: object
) -> None:
    shutil.rmtree(settings.spill_folder)
    settings.spill_folder.write_text("a file")
    with pytest.raises(UnavailableError, match="spill"):
        resource(settings)  # type: ignore[operator]
    with pytest.raises(UnavailableError, match="spill"), spill_folder(settings, "sort"):
        pass
