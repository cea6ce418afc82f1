"""Tasks of `benchmarks.debt`: ingests into a table, with compaction after some of them."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, quantiles
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.measuring import Watch
from benchmarks.result import check
from benchmarks.rows import even_leaves, random_rows
from benchmarks.schema import SCHEMA
from sleeper.admin.tables import create_table
from sleeper.compaction.plan import create_table_jobs
from sleeper.compaction.service import run_compaction_message
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.queue import QueueName
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.partitions.region import Region, key_region
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.schema.model import schema_to_json
from sleeper.statestore.reading.version_reader import VersionReader

_NAME = "rows"
_LOOKUPS = 1_000
_LOW_BITS = 0xFFFFFFFF


@dataclass
class Load:
    """A table that is loaded, and what ingests and compactions have cost so far.

    `files` are the numbers of files that a lookup may open, one after each ingest.
    """

    instance: Instance
    rows: int = 0
    sort_sum: int = 0
    ingest_seconds: float = 0
    compaction_seconds: float = 0
    jobs: int = 0
    rows_rewritten: int = 0
    files: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    @property
    def table(self) -> OpenTable:
        return self.instance.table(_NAME)

    def ingest(self, rows: int, seed: int) -> None:
        """Ingests random rows, of which it remembers a key."""
        table = random_rows(rows, seed)
        start = time.process_time()
        ingest_rows(self.instance, _NAME, table.to_batches(), f"ingest-{seed}")
        self.ingest_seconds += time.process_time() - start
        self.rows += rows
        self.sort_sum += _low_sum(table["sort"])
        self.keys.append(table["key"][0].as_py())

    def compact(self, full: bool = False) -> int:
        """Creates jobs once, and runs them. Returns their number."""
        start, jobs = time.process_time(), 0
        create_table_jobs(self.instance, self.table.ref, full)
        queue = self.instance.jobs.queue(QueueName.COMPACTION)
        while messages := queue.receive():
            for message in messages:
                _, written = run_compaction_message(self.instance, message.body)
                queue.delete(message.receipt)
                self.rows_rewritten += written
                jobs += 1
        self.compaction_seconds += time.process_time() - start
        self.jobs += jobs
        return jobs

    def bytes_of(self, kind: str) -> int:
        """Returns the bytes of the files that transactions of the kind added."""
        with self.table.state.reading() as state:
            reader = state.query(VersionReader)
            (size,) = reader.row("SELECT sum(bytes) FROM history WHERE kind = :kind", kind=kind)
        return int(size or 0)

    def repeat(self, ingests: int, rows: int, ingests_per_creation: int) -> None:
        """Ingests so many times, and creates and runs jobs once after each few ingests."""
        for seed in range(1, ingests + 1):
            self.ingest(rows, seed)
            self.count_files()
            if seed % ingests_per_creation == 0:
                self.compact()

    def figures(self) -> dict[str, float]:
        """Returns what compactions have cost, and how many files lookups may have opened."""
        rewritten = self.bytes_of("commit_compaction")
        return {
            "jobs": self.jobs,
            "of_ingests": self.compaction_seconds / self.ingest_seconds,
            "amplification": 1 + self.rows_rewritten / self.rows,
            "amplification_bytes": 1 + rewritten / self.bytes_of("add_files"),
            "files_mean": mean(self.files),
            "files_max": max(self.files),
        }

    def count_files(self) -> None:
        """Remembers the number of files that a lookup of a random key may open."""
        key = self.keys[len(self.files) * 7919 % len(self.keys)]
        with self.table.state.reading() as state:
            region = key_region(SCHEMA, (key,))
            (leaf,) = state.partitions.leaves_overlapping([region])
            self.files.append(len(state.files.leaf_files(leaf.id, region)))

    def lookup_ms(self) -> list[float]:
        """Returns the times of lookups of keys that exist."""
        keys = [self.keys[n * 7919 % len(self.keys)] for n in range(_LOOKUPS)]
        times = []
        for key in keys:
            start = time.perf_counter()
            found = _query(self.instance, key_region(SCHEMA, (key,)))
            times.append((time.perf_counter() - start) * 1_000)
            check(found.num_rows >= 1, f"key {key} was not found")
        return times[_LOOKUPS // 10 :]

    def check_content(self) -> None:
        """Checks the number, the order and the sum of all rows."""
        rows = sort_sum = 0
        last = ""
        with open_query(self.instance, _NAME, Query()) as result:
            for batch in result:
                keys = pc.cast(batch.column(0), pa.string())
                check(last <= keys[0].as_py(), "batches are not in order")
                in_order = pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py()
                check(in_order is not False, "rows are not in order")
                last = keys[-1].as_py()
                rows += batch.num_rows
                sort_sum += _low_sum(batch.column(1))
        check(rows == self.rows, f"{rows:,} rows of {self.rows:,}")
        check(sort_sum == self.sort_sum, "the sums differ")


def _low_sum(sorts: pa.Array | pa.ChunkedArray) -> int:
    """Returns the sum of the low bits, which does not overflow."""
    return int(pc.sum(pc.bit_wise_and(sorts, _LOW_BITS)).as_py())


def _query(instance: Instance, region: Region) -> pa.Table:
    with open_query(instance, _NAME, Query((region,))) as result:
        return pa.Table.from_batches(list(result), schema=result.schema)


@contextmanager
def _new_load(home: str, leaves: int, properties: dict[str, str]) -> Iterator[Load]:
    shutil.rmtree(home, ignore_errors=True)
    create_local_instance(Path(home), "debt", {})
    instance = open_local_instance(Path(home))
    try:
        points = [leaf.region.ranges[0].min for leaf in even_leaves(leaves) if leaf.is_leaf]
        create_table(instance, _NAME, schema_to_json(SCHEMA), properties, points[1:])
        load = Load(instance)
        # The first job and the first query of a process load libraries.
        load.ingest(1_000, 0)
        _query(instance, key_region(SCHEMA, (load.keys[0],)))
        load.ingest_seconds = 0
        yield load
    finally:
        instance.close()
    shutil.rmtree(home)


def compaction(
    watch: Watch,
    home: str,
    ingests: int,
    rows: int,
    leaves: int,
    ingests_per_creation: int,
    properties: dict[str, str],
) -> dict[str, Any]:
    """Ingests, creates and runs jobs after each few ingests, and at the end until none is left."""
    with _new_load(home, leaves, properties) as load:
        with watch:
            load.repeat(ingests, rows, ingests_per_creation)
            while load.compact():
                pass
        load.check_content()
        return load.figures()


def reads(
    watch: Watch,
    home: str,
    ingests: int,
    rows: int,
    leaves: int,
    ingests_per_creation: int,
    properties: dict[str, str],
) -> dict[str, Any]:
    """Does the same without the last jobs, and looks up keys before and after a full compaction."""
    with _new_load(home, leaves, properties) as load:
        with watch:
            load.repeat(ingests, rows, ingests_per_creation)
        figures = load.figures()
        before = _p99(load.lookup_ms())
        load.check_content()
        while load.compact(full=True):
            pass
        after = _p99(load.lookup_ms())
        load.check_content()
        return {**figures, "lookup_p99_ms": before, "lookup_of_compacted": before / after}


def _p99(times: list[float]) -> float:
    return quantiles(times, n=100)[98]
