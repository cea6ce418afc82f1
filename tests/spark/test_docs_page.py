"""The examples of the Spark pages print their documented output in the shared session."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.system.documents import ROOT
from tests.system.test_docs import ON_SPARK, check_page, surroundings


@pytest.mark.parametrize("page", sorted(ON_SPARK))
def test_examples_of_the_spark_pages_print_the_documented_output(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    # The folder in which Spark finds relative paths.
    assert spark._jvm is not None
    previous = spark._jvm.System.setProperty("user.dir", str(tmp_path))
    try:
        check_page(ROOT / "docs" / page, surroundings(tmp_path, monkeypatch))
    finally:
        spark._jvm.System.setProperty("user.dir", previous)
    assert (tmp_path / "checkpoint").is_dir() == (page == "spark.md")
