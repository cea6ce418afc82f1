"""Failures of `sleeper bulk-import` before Spark starts."""

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sleeper import DISTRIBUTION
from tests.unit.cli.conftest import Sleeper


def test_missing_pyspark_error_names_the_package(
    cities: Sleeper, rows_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("pyspark") or ".spark" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    result = cities("bulk-import", "cities", rows_file)
    assert result.status == 1
    assert result.stderr.startswith("error: sleeper bulk-import needs pyspark")
    assert f"pip install '{DISTRIBUTION}[spark]'" in result.stderr
    for command in (["bulk-export", "cities"], ["stash", "run", "--destination", rows_file.parent]):
        result = cities(*command, "--master", "yarn")
        assert result.status == 1
        assert f"error: sleeper {command[0]} --master needs pyspark" in result.stderr


def test_unknown_table_is_reported_before_spark_loads(cities: Sleeper, rows_file: Path) -> None:
    result = cities("bulk-import", "towns", rows_file)
    assert result.status == 1
    assert "towns" in result.stderr


def test_a_setting_without_a_value_is_refused_before_spark_starts(
    cities: Sleeper, rows_file: Path
) -> None:
    result = cities("bulk-import", "cities", rows_file, "--conf", "spark.cores.max")
    assert result.status == 1
    assert result.stderr == (
        "error: --conf 'spark.cores.max' is not a setting of Spark (expected NAME=VALUE, such as "
        "spark.executor.memory=4g)\n"
    )


def test_the_command_to_retry_has_no_secrets(
    cities: Sleeper, rows_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Jobs reuse the session of their process, such as that of tests before, whatever its master.
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    options = ["--master", "spark://127.0.0.1:1", "--conf", "spark.cores.max=4"]
    options += ["--conf", "spark.executorEnv.AWS_SECRET_ACCESS_KEY=sesame"]
    result = cities("bulk-import", "cities", rows_file, *options)
    assert result.status == 1
    assert "--conf spark.cores.max=4 " in result.stderr
    assert "spark.executorEnv.AWS_SECRET_ACCESS_KEY=" in result.stderr
    assert "sesame" not in result.stderr
    assert "error: cannot connect to the master spark://127.0.0.1:1: " in result.stderr
