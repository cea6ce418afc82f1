"""A cluster in the test's process, which may run tasks repeatedly."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from sleeper.bulk_import.exchange import (
    cut_split,
    new_file_from_json,
    new_file_to_json,
    rows_of_pieces,
    write_slot,
)
from sleeper.bulk_import.run import Exchange
from sleeper.bulk_import.slots import slot_of_task
from sleeper.bulk_import.splits import InputSplit, SplitSample, sample_split
from sleeper.schema.model import Schema
from sleeper.statestore.transactions.add_files import NewFile


@dataclass
class InProcessCluster:
    """Runs every task `runs` times and keeps the result of the last run."""

    parallelism: int = 2
    runs: int = 1
    before_write: Callable[[], object] = lambda: None
    task_rows: list[int] = field(default_factory=list)

    def sample(
        self, splits: Sequence[InputSplit], schema: Schema, keys_max: int
    ) -> list[SplitSample]:
        return [sample_split(split, schema, keys_max) for split in splits]

    def write(self, exchange: Exchange) -> list[NewFile]:
        self.before_write()
        engine = replace(exchange.engine, threads=1)
        schema = exchange.target.schema
        results: list[NewFile] = []
        # Each task that writes may meet other runs of the tasks that read.
        rounds = [self._read(exchange) for _ in range(self.runs)]
        for task in sorted({task for bodies in rounds for task in bodies}):
            slot = slot_of_task(exchange.slots, task)
            for bodies in rounds:
                rows = rows_of_pieces(iter(bodies[task]), schema)
                files = list(write_slot(slot, rows, exchange.target, engine))
            results += [new_file_from_json(new_file_to_json(new)) for new in files]
            self.task_rows.append(sum(new.file.rows for new in files))
        return results

    def _read(self, exchange: Exchange) -> dict[int, list[pa.Buffer]]:
        bodies: dict[int, list[pa.Buffer]] = defaultdict(list)
        for number, split in enumerate(exchange.splits):
            schema = exchange.target.schema
            for piece in cut_split(number, split, schema, exchange.slots, exchange.engine):
                bodies[piece.task].append(piece.body)
        return bodies
