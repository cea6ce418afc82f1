"""Reads of a warm process write no hold and make no transaction."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.local.holds import LocalHolds
from sleeper.statestore.store import StateStore

SCHEMA = {"rowKeyFields": [{"name": "k", "type": "LongType"}]}
ROWS = 128
_WRITES = {LocalHolds: ("put", "extend", "delete"), StateStore: ("_commit", "start_commit")}


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counter[str]:
    """Counts commits, and writes of holds of this test's instance.

    Instances of other tests may renew their floors meanwhile.
    """
    counts: Counter[str] = Counter()

    def count(kind: type, name: str) -> None:
        write = getattr(kind, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            holds = arguments[0]
            if kind is StateStore or holds.database.path.is_relative_to(tmp_path):
                counts[f"{kind.__name__}.{name}"] += 1
            return write(*arguments, **named)

        monkeypatch.setattr(kind, name, counted)

    for kind, names in _WRITES.items():
        for name in names:
            count(kind, name)
    return counts


def test_warm_queries_statements_scans_and_streams_write_nothing(
    tmp_path: Path, writes: Counter[str]
) -> None:
    with sleeper.create_instance(tmp_path / "i") as instance:
        table = instance.create_table("t", SCHEMA, split_points=list(range(2, ROWS, 2)))
        table.ingest(pa.table({"k": list(range(ROWS))}))
        state = instance._ports.table("t").state
        with state.reading() as before:
            number = before.number
        assert table.query().to_arrow().num_rows == ROWS
        assert writes["LocalHolds.put"] == 1
        writes.clear()
        for _ in range(20):
            assert table.query().to_arrow().num_rows == ROWS
            assert instance.sql("SELECT k FROM t").to_arrow().num_rows == ROWS
            with table.reader() as reader:
                assert sum(batch.num_rows for batch in reader.query()) == ROWS
            assert len(list(table.changes(from_number=1))) > 0
        assert writes == Counter()
        with state.reading() as after:
            assert after.number == number
