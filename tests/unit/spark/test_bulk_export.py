"""Exports whose leaves Spark writes, without Spark."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.bulk_export.service import export_table
from sleeper.errors import UnavailableError
from sleeper.opening import open_instance
from sleeper.spark import bulk_export
from sleeper.spark.bulk_export import leaves_on
from sleeper.spark.settings import SparkSettings
from sleeper.storage.location import DataRoot

SCHEMA = {"rowKeyFields": [{"name": "k", "type": "LongType"}]}


class Parts:
    """The leaves, without executors. `are_lost` executors write to another folder."""

    def __init__(self, leaves: Sequence[Any], are_lost: bool) -> None:
        self._leaves, self._are_lost, self._rows = leaves, are_lost, [0]

    def mapPartitions(self, write: Any) -> "Parts":
        if not self._are_lost:
            self._rows = list(write(self._leaves))
        return self

    def sum(self) -> int:
        return sum(self._rows)


@pytest.mark.parametrize("are_lost", [False, True])
def test_executors_see_both_folders_and_their_files_are_checked(
    are_lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    @contextmanager
    def start(_: str, __: SparkSettings, ___: Path, roots: Sequence[DataRoot]) -> Iterator[Any]:
        seen.extend(root.url_of("") for root in roots)
        parts = SimpleNamespace(parallelize=lambda leaves, _: Parts(leaves, are_lost))
        yield SimpleNamespace(sparkContext=parts)

    monkeypatch.setattr(bulk_export, "start_session", start)
    where, exports = tmp_path / "instance", tmp_path / "exports"
    with sleeper.create_instance(where) as instance:
        instance.create_table("t", SCHEMA, split_points=[2]).ingest(pa.table({"k": [1, 2, 3]}))
    with closing(open_instance(where)) as ports:

        def export() -> Any:
            write = leaves_on(SparkSettings("spark://here:7077"))
            return export_table(ports, "t", exports, "e", write_leaves=write)

        if are_lost:
            with pytest.raises(UnavailableError, match="which does not exist in"):
                export()
        else:
            result = export()
            assert (result.rows, result.files) == (3, 2)
    assert seen == [str(where), str(exports)]
