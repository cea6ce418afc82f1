"""Operations of bulk imports: the product's own, on a cluster that runs its tasks in this process.

As on Spark, a task may run twice, and the files of one run alone are committed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

import pyarrow as pa

from simulation.model.journal import Ingest
from simulation.workload.client import Client, CreatedTable, answered
from simulation.workload.ingests import make_ingest, put_files
from simulation.workload.registry import has_table, operation
from sleeper.bulk_import.exchange import cut_split, rows_of_pieces, write_slot
from sleeper.bulk_import.run import Exchange
from sleeper.bulk_import.service import bulk_import_paths
from sleeper.bulk_import.slots import slot_of_task
from sleeper.bulk_import.splits import InputSplit, SplitSample, sample_split
from sleeper.datafiles.engine.settings import spill_folder
from sleeper.schema.model import Schema
from sleeper.statestore.transactions.add_files import NewFile

_SECOND_RUN = 0.2


@dataclass(frozen=True, slots=True)
class TaskCluster:
    """Implements `sleeper.bulk_import.run.Cluster`."""

    random: Random
    parallelism: int = 2

    def sample(
        self, splits: Sequence[InputSplit], schema: Schema, keys_max: int
    ) -> list[SplitSample]:
        """Implements the port."""
        return [sample_split(split, schema, keys_max) for split in splits]

    def write(self, exchange: Exchange) -> list[NewFile]:
        """Implements the port."""
        pieces: dict[int, list[pa.Buffer]] = {}
        for number, split in enumerate(exchange.splits):
            schema = exchange.target.schema
            for piece in cut_split(number, split, schema, exchange.slots, exchange.engine):
                pieces.setdefault(piece.task, []).append(piece.body)
        files: list[NewFile] = []
        for task, bodies in sorted(pieces.items()):
            if self.random.random() < _SECOND_RUN:
                list(self._write_task(exchange, task, bodies))
            files += self._write_task(exchange, task, bodies)
        return files

    @staticmethod
    def _write_task(
        exchange: Exchange, task: int, bodies: Sequence[pa.Buffer]
    ) -> Iterator[NewFile]:
        slot = slot_of_task(exchange.slots, task)
        rows = rows_of_pieces(bodies, exchange.target.schema)
        with spill_folder(exchange.engine, "task") as folder:
            engine = replace(exchange.engine, spill_folder=folder)
            yield from write_slot(slot, rows, exchange.target, engine)


def _import_files(client: Client, table: CreatedTable, job: Ingest) -> None:
    with answered(job):
        cluster = TaskCluster(client.random)
        result = bulk_import_paths(client.instance, table.name, job.files, lambda: cluster, job.id)
        job.acknowledge(result.number)


@operation(4)
def bulk_import(client: Client) -> None:
    """Imports files, whose rows are no operations."""
    table = client.choose_table()
    job, schema = make_ingest(client, table, with_deletes=False)
    job.is_bulk = True
    job.files = put_files(client, table, job, schema)
    _import_files(client, table, job)


def _imports(client: Client) -> list[tuple[CreatedTable, Ingest]]:
    tables = {each.id: each for each in client.catalogue.active()}
    return [
        (tables[each.table_id], each)
        for each in client.journal.ingests.values()
        if each.is_bulk and each.table_id in tables
    ]


def _has_import(client: Client) -> bool:
    return has_table(client) and bool(_imports(client))


@operation(1, _has_import)
def repeat_bulk_import(client: Client) -> None:
    """Imports the files of a job again, as a driver does that is started again."""
    _import_files(client, *client.random.choice(_imports(client)))
