"""A canary for filter push-down to Python data sources, which is defective in Spark.

When the test below passes, Spark is mended: key filters could then choose leaves, and the
options for keys and ranges need not be the only way.
"""

from collections.abc import Iterable, Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition
from pyspark.sql.types import StructType

_SETTING = "spark.sql.python.filterPushdown.enabled"


def _source() -> type[DataSource]:
    """Rows 1 and 2; made in a function, so that executors need not find this module."""

    class Numbers(DataSourceReader):
        def __init__(self) -> None:
            self.values = {1, 2}

        def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
            for item in filters:
                if isinstance(item, EqualTo):
                    self.values &= {item.value}
                else:
                    yield item

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield from ((n,) for n in sorted(self.values))

    class PushedNumbers(DataSource):
        @classmethod
        def name(cls) -> str:
            return "pushed_numbers"

        def schema(self) -> str:
            return "n long"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Numbers()

    return PushedNumbers


@pytest.mark.xfail(strict=True, reason="a filter that was pushed once sticks to the DataFrame")
def test_a_pushed_down_filter_does_not_persist(spark: SparkSession) -> None:
    spark.conf.set(_SETTING, "true")
    try:
        spark.dataSource.register(_source())
        frame = spark.read.format("pushed_numbers").load()
        assert frame.filter("n = 1").count() == 1
        assert frame.count() == 2
    finally:
        spark.conf.unset(_SETTING)
