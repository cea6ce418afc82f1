"""Keys of every type: engines find the hidden rows, and skip files by the bounds of manifests."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import sleeper
from tests.engines import ENGINES, Readers, count_rows

pytestmark = pytest.mark.slow

VALUES: dict[str, list[Any]] = {
    "IntType": [-5, 0, 7],
    "LongType": [-5, 0, 2**60],
    "StringType": ["", "é", "z\U0001f600"],
    "ByteArrayType": [b"", b"\x00", b"\xff\xff"],
    "BooleanType": [False, True],
    "TimestampType": [datetime(1960, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, 0, 0, 0, 5, UTC)],
    "DateType": [date(1960, 1, 1), date(2020, 1, 1)],
    "DecimalType": [Decimal("-1.50"), Decimal("0.00"), Decimal("12345.67")],
}
PARAMETERS = {"DecimalType": {"DecimalType": {"precision": 9, "scale": 2}}}
# PyIceberg makes no literal of these from text.
WITHOUT_TEXT = {"ByteArrayType", "BooleanType"}


def test_engines_read_keys_of_every_type(tmp_path: Path, readers: Readers) -> None:
    with sleeper.create_instance(tmp_path / "instance") as instance:
        for kind, values in VALUES.items():
            fields = [{"name": "k", "type": PARAMETERS.get(kind, kind)}]
            table = instance.create_table(kind, json.dumps({"rowKeyFields": fields}))
            for value in values:
                table.ingest([{"k": value}])
            check_bounds(readers, instance.publish_iceberg(kind).metadata_url, kind)
            table.ingest([{"k": value} for value in values])
            table.delete(keys=[[values[1]]])
            metadata = instance.publish_iceberg(kind).metadata_url
            expected = count_rows(table.query().to_arrow())
            assert expected.total() == 2 * len(values) - 2
            for engine in ENGINES:
                assert count_rows(readers.read(engine, metadata=metadata)) == expected, engine


def check_bounds(readers: Readers, metadata: str, kind: str) -> None:
    for value in () if kind in WITHOUT_TEXT else VALUES[kind]:
        text = value.isoformat() if isinstance(value, date) else str(value)
        files = readers.ask(engine="files", metadata=metadata, equal=("k", text))
        assert files == 1, (kind, value)
