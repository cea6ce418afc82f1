"""Bulk imports from the command line, as far as they come without a Spark."""

import sys
from pathlib import Path

import pytest

from sleeper import DISTRIBUTION
from tests.unit.cli.conftest import Sleeper


def test_without_pyspark_it_says_what_to_install(
    cities: Sleeper, rows_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("pyspark", "sleeper.spark"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    done = cities("bulk-import", "cities", rows_file)
    assert done.status == 1
    assert done.stderr.startswith("error: sleeper bulk-import needs pyspark")
    assert f"pip install '{DISTRIBUTION}[spark]'" in done.stderr


def test_a_table_that_is_not_there_is_named_before_spark_is_loaded(
    cities: Sleeper, rows_file: Path
) -> None:
    done = cities("bulk-import", "towns", rows_file)
    assert done.status == 1
    assert "towns" in done.stderr
