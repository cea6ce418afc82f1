"""A local instance with a table of a known schema, its model, and a receiver without faults."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.calls import DirectCalls
from simulation.checks.look import Look
from simulation.model.tables import TableDefinition, TableKind
from simulation.systems.receiver import RECEIVERS
from simulation.workload.client import CreatedTable
from simulation.workload.ingests import make_ingest, to_arrow
from sleeper.admin.tables import create_table
from sleeper.ingest.service import ingest_rows
from sleeper.schema.model import Field, PrimitiveType, Schema
from tests.simulation.model.driver import Driver

SCHEMA = Schema(
    (Field("key", PrimitiveType.LONG),),
    (),
    (Field("name", PrimitiveType.STRING), Field("count", PrimitiveType.INT)),
)


class SystemDriver(Driver):
    """A history of one table, `rows`."""

    def __init__(self, folder: Path, kind: TableKind = TableKind.LATEST) -> None:
        super().__init__(folder, 1)
        RECEIVERS.attach(DirectCalls(self.clock))
        settings = {"sleeper.table.rows": "latest"} if kind is TableKind.LATEST else {}
        if kind is TableKind.SNAPSHOT:
            settings = {"sleeper.table.type": "snapshot"}
        self.table = self.add_table("rows", TableDefinition(kind, SCHEMA, settings, ()))

    def add_table(self, name: str, definition: TableDefinition) -> CreatedTable:
        """Creates a table."""
        ref = create_table(self.instance, name, definition.schema_text, definition.settings)
        table = CreatedTable(name, ref.id, definition)
        self.client.catalogue.tables[name] = table
        return table

    def ingest(self) -> None:
        """Adds random rows, at least one."""
        ingest, schema = make_ingest(self.client, self.table)
        ingest.deletes = frozenset()
        if not ingest.rows:
            self.ingest()
            return
        batches = to_arrow(ingest.rows, schema).to_batches()
        ingest.acknowledge(ingest_rows(self.instance, "rows", batches, ingest.id).number)

    def look(self, is_end: bool = True) -> Look:
        """Reads the logs, and returns what checks see."""
        self.observer.refresh()
        return Look(self.observer, self.random, is_end)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[SystemDriver]:
    driver = SystemDriver(tmp_path)
    yield driver
    driver.close()
