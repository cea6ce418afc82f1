"""Spark evaluates no condition on a row that a table hides."""

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

import sleeper
from sleeper.spark import read_table
from tests.spark.tables import loaded
from tests.tables.poison import HIDDEN, compact_all, make_poisoned_tables

pytestmark = pytest.mark.slow
CONDITIONS = ["10 / z <> -1", "CAST(text AS BIGINT) >= 0 AND CAST(big AS INT) > 0"]
# A row that is hidden from a caller is visible to the owner.
TABLES = [name for name in HIDDEN if name != "restricted"]


@pytest.fixture(scope="module", params=["before a compaction", "after a compaction"])
def poisoned(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sleeper.Instance]:
    with make_poisoned_tables(tmp_path_factory.mktemp("poison") / "instance") as opened:
        if request.param == "after a compaction":
            compact_all(opened)
        yield opened


@pytest.mark.parametrize("table", TABLES)
def test_hidden_rows_do_not_fail_a_condition(
    spark: SparkSession, poisoned: sleeper.Instance, table: str
) -> None:
    expected = [each for each in range(10) if each != 2]
    own = read_table(spark, table, poisoned._ports.where)
    for frame in (loaded(spark, poisoned.table(table)), own):
        for condition in CONDITIONS:
            assert _ids(frame.where(condition)) == expected, (condition, frame)


def test_conditions_fail_on_visible_rows(spark: SparkSession, poisoned: sleeper.Instance) -> None:
    for table in ("deleted", "cut"):
        with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
            _ids(loaded(spark, poisoned.table(table)).where("10 / (z - 4) <> -1"))


def _ids(frame: DataFrame) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())
