"""Settings of data files from properties."""

import pytest

from sleeper.properties.values import instance_properties, table_properties
from sleeper.runs.engine import file_settings


@pytest.mark.parametrize(("layout", "rows"), [("", 512), ("lookup", 512), ("scan", 20_000)])
def test_the_layout_limits_the_rows_of_pages(layout: str, rows: int) -> None:
    instance = instance_properties({})
    values = {
        "sleeper.table.name": "t",
        "sleeper.table.id": "0a0b0c0d",
        "sleeper.table.schema": '{"rowKeyFields":[{"name":"k","type":"LongType"}]}',
        "sleeper.table.parquet.layout": layout,
    }
    assert file_settings(table_properties(values, instance)).page_rows_max == rows
