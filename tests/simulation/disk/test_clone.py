"""A clone of which the disk refuses a write fails, or is whole nevertheless."""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from simulation.calls import Fault
from simulation.disk import DirectHooks, install_disk
from sleeper.admin.clone import clone_table
from sleeper.admin.tables import create_table
from sleeper.errors import UnavailableError
from sleeper.ingest.service import ingest_rows
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.query.request import Query
from sleeper.query.service import open_query
from tests.clock import FakeClock

_SCHEMA = json.dumps({"rowKeyFields": [{"name": "k", "type": "LongType"}]})


@dataclass
class _Hooks(DirectHooks):
    """Fails one write of the database that is being installed: the `left`th from now."""

    left: int = -1

    def before(self, operation: str, path: str) -> Fault | None:
        if operation != "write" or not path.endswith(".installing"):
            return None
        self.left -= 1
        return Fault.UNAVAILABLE if self.left == 0 else None


@pytest.mark.parametrize("number", range(1, 7))
def test_a_clone_is_whole_or_fails(folder: Path, number: int) -> None:
    hooks = _Hooks(Random(1))
    disk = install_disk(folder, hooks)
    try:
        create_local_instance(folder / "instance", "simulated")
        instance = open_local_instance(folder / "instance", FakeClock())
        create_table(instance, "rows", _SCHEMA)
        ingest_rows(instance, "rows", pa.table({"k": range(5)}).to_batches(), "job")
        hooks.left = number
        with suppress(UnavailableError):
            clone_table(instance, "rows", "copy")
        hooks.left = -1
        names = [each.name for each in instance.tables.index.list()]
        for name in names:
            with open_query(instance, name, Query()) as result:
                rows = [row["k"] for batch in result for row in batch.to_pylist()]
            assert sorted(rows) == [*range(5)], name
        instance.close()
    finally:
        disk.uninstall()
