"""The engine's plans for pieces: merges that do not sort."""

from typing import Any

import pyarrow as pa
import pytest

from sleeper.datafiles.engine.scan import stream_batches
from tests.unit.stash.conftest import SCHEMA, Stasher

LATEST = {"sleeper.table.rows": "latest"}
AGGREGATED = {"sleeper.table.aggregations": "max(v)"}


@pytest.mark.parametrize(("properties", "expected"), [({}, 6), (LATEST, 2), (AGGREGATED, 2)])
def test_pieces_are_merged_without_a_sort(
    stasher: Stasher,
    monkeypatch: pytest.MonkeyPatch,
    properties: dict[str, str],
    expected: int,
) -> None:
    plans: list[str] = []

    def record(session: Any, frame: Any, *others: Any) -> Any:
        plans.append(frame.execution_plan().display_indent())
        return stream_batches(session, frame, *others)

    table = stasher.instance.create_table("t", SCHEMA, properties, split_points=[2])
    for _ in range(2):
        table.ingest(pa.table({"k": [1, 1, 3], "v": ["a", "b", "c"]}))
    monkeypatch.setattr("sleeper.datafiles.merge.plan.stream_batches", record)
    # Leaves are divided, so that scans have regions.
    (stashed,) = stasher.run(piece_bytes=1).tables
    assert stashed.rows == expected
    assert len(plans) >= 2
    assert "SortExec" not in "".join(plans)
    assert "SortPreservingMergeExec" in plans[0]
