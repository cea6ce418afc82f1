"""The page about Spark says what its examples do, in the session that all tests share."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.system.documents import ROOT
from tests.system.test_docs import check_page, surroundings

pytestmark = pytest.mark.slow


def test_the_page_about_spark_says_what_its_examples_do(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_page(ROOT / "docs" / "spark.md", surroundings(tmp_path, monkeypatch))
