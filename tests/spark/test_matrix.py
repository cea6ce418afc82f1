"""The installed PySpark has the features that the matrix records for it, in the shared session."""

from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import sleeper
from tests.spark.matrix.database import database_settings
from tests.spark.matrix.features import FEATURES, Feature, World
from tests.spark.matrix.probe import run_feature
from tests.spark.matrix.record import PAGE, read_record, with_section


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name.replace("`", ""))
def test_the_installed_version_has_the_features_of_its_record(
    spark: SparkSession,
    instance: sleeper.Instance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    feature: Feature,
) -> None:
    if feature.has_database:
        for name, value in database_settings(request.getfixturevalue("postgres_database")):
            monkeypatch.setenv(name, value)
    minor = ".".join(pyspark.__version__.split(".")[:2])
    recorded = read_record()[minor]["features"][feature.name]
    assert run_feature(feature, World(spark, instance, tmp_path)) == recorded


def test_all_versions_read_the_same_rows() -> None:
    record = read_record()
    assert list(record) == ["3.5", "4.0", "4.1", "4.2", "4.3"]
    runs = [run[kind] for run in record.values() for kind in ("features", "connect") if kind in run]
    for name, newest in record["4.3"]["features"].items():
        outcomes = [run[name] for run in runs]
        assert [each for each in outcomes if "rows" in each and each != newest] == [], name


@pytest.mark.generated
def test_the_page_has_what_the_last_run_recorded() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_section(page, read_record()), "stale: make spark-matrix"
