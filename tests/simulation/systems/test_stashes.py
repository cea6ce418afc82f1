"""The rules of stashes hold for the product, and find planted bugs."""

import json
import os
from pathlib import Path

import pytest

from simulation.checks.stashes import check_stashes
from simulation.checks.violation import Violation
from sleeper.stash.layout import StashFormat
from sleeper.stash.run import StashResult, run_stash
from tests.simulation.systems.conftest import SystemDriver


def _make(driver: SystemDriver, folder: Path, format: StashFormat) -> StashResult:
    destination = str(folder / "stashes")
    driver.journal.destinations = [destination]
    return run_stash(driver.instance, destination, piece_bytes=1, format=format)


@pytest.mark.parametrize("format", StashFormat)
def test_the_rules_hold(driver: SystemDriver, tmp_path: Path, format: StashFormat) -> None:
    driver.ingest()
    _make(driver, tmp_path, format)
    check_stashes(driver.look())
    driver.ingest()
    driver.clock.now_ms += 2000
    _make(driver, tmp_path, format)
    check_stashes(driver.look())


@pytest.mark.parametrize("format", StashFormat)
def test_a_file_that_is_missing_is_found(
    driver: SystemDriver, tmp_path: Path, format: StashFormat
) -> None:
    driver.ingest()
    made = _make(driver, tmp_path, format)
    next((tmp_path / "stashes" / made.root / "rows").iterdir()).unlink()
    with pytest.raises(Exception, match="damaged"):
        check_stashes(driver.look())


def test_a_stash_of_another_version_is_found(driver: SystemDriver, tmp_path: Path) -> None:
    driver.ingest()
    made = _make(driver, tmp_path, StashFormat.JSON)
    driver.ingest()
    tables = tmp_path / "stashes" / made.root / "_TABLES"
    line = json.loads(tables.read_text())
    line["version"] = driver.instance.table("rows").state.newest_number()
    tables.write_text(json.dumps(line))
    with pytest.raises(Violation, match="rows of its versions"):
        check_stashes(driver.look())


def test_a_latest_stash_that_is_not_complete_is_found(driver: SystemDriver, tmp_path: Path) -> None:
    driver.ingest()
    made = _make(driver, tmp_path, StashFormat.JSON)
    os.unlink(tmp_path / "stashes" / made.root / "_SUCCESS")
    with pytest.raises(Violation, match="latest stash is complete"):
        check_stashes(driver.look())
