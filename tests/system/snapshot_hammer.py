"""A process that loads, shapes or reads a snapshot table until a file tells it to stop.

The rows of a load carry its number. A read must have all rows of one load, and never an older one
than the read before. Prints the number of its actions and the last load that it read.
"""

import itertools
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from sleeper.compaction.plan import compact_table
from sleeper.errors import InvalidRequestError
from sleeper.garbage_collection.service import collect_table, expire_table_versions
from sleeper.ingest.parts import begin_ingest, commit_ingest, write_ingest_part
from sleeper.opening import open_instance
from sleeper.partitions.region import Range, Region
from sleeper.query.hold import VersionHold
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.query.sql.service import open_sql
from sleeper.splitting.service import split_table
from sleeper.workers.worker import Worker

ROWS = 40_000
"""The rows of each load: several batches."""


class Hammer:
    """The actions on table `t`."""

    def __init__(self, where: str) -> None:
        self.instance = open_instance(where)
        self.worker = Worker(self.instance, "task", threading.Event())

    def load(self, number: int) -> int:
        """Writes two files, so that there is something to compact."""
        job_id, keys = f"load-{number}", range(ROWS)
        batches = [
            pa.record_batch(
                {"k": pa.array(part, pa.int64()), "load": pa.array([number] * len(part))}
            )
            for part in (keys[::2], keys[1::2])
        ]
        begun = begin_ingest(self.instance.table("t"), batches[0].schema, "rows", job_id=job_id)
        files = [
            file
            for batch in batches
            for file in write_ingest_part(self.instance, begun, [batch], "rows", 1)
        ]
        commit_ingest(self.instance, begun, job_id, files)
        return number

    def shape(self, _: int) -> int:
        if random.randrange(5) == 0:
            split_table(self.instance, "t")
        compact_table(self.instance, "t", full=True)
        self.worker.run_one()
        return 0

    def expire(self, _: int) -> int:
        expire_table_versions(self.instance, "t")
        collect_table(self.instance, "t")
        return 0

    def scan(self, _: int) -> int:
        with open_query(self.instance, "t", Query()) as batches:
            return check(slowly(batches), ROWS)

    def read_range(self, _: int) -> int:
        low = random.randrange(ROWS)
        high = random.choice([low + 1, random.randrange(low, ROWS) + 1])
        query = Query((Region((Range(low, high),)),))
        with open_query(self.instance, "t", query) as batches:
            return check(slowly(batches), high - low)

    def count(self, _: int) -> int:
        statement = "SELECT load, count(*) AS rows FROM t GROUP BY load"
        with open_sql(self.instance, statement) as batches:
            (row,) = pa.Table.from_batches(list(batches)).to_pylist()
        assert row["rows"] == ROWS, row
        return int(row["load"])

    def read_old(self, _: int) -> int:
        with self.instance.table("t").state.reading() as state:
            version = random.choice(state.snapshots.versions())
        try:
            with open_query(self.instance, "t", Query(version=version.number)) as batches:
                first = next(batches)
                load = check(itertools.chain([first], slowly(batches)), ROWS)
        except InvalidRequestError as error:
            if "no longer readable" not in str(error):
                raise
            return 0  # it expired before the query began
        assert f"load-{load}" == version.job
        return 0


def check(batches: Iterable[pa.RecordBatch], rows: int) -> int:
    """Returns the load of the rows, which must be all of one."""
    read = pa.Table.from_batches(list(batches))
    loads = set(read["load"].to_pylist())
    assert (len(loads), read.num_rows) == (1, rows), (loads, read.num_rows, rows)
    return int(loads.pop())


def slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the batches with time for others between them."""
    for batch in batches:
        yield batch
        time.sleep(0.05)


def main(where: str, role: str, stop: Path) -> None:
    # A floor keeps all versions from its own on, and moves on too seldom for a short test.
    VersionHold.under_floor_seconds = 0.0
    hammer = Hammer(where)
    roles: dict[str, list[Callable[[int], int]]] = {
        "load": [hammer.load],
        "shape": [hammer.shape, hammer.expire],
        "read": [hammer.scan, hammer.read_range, hammer.count],
        "read old": [hammer.read_old],
    }
    actions = roles[role]
    last = 0
    for number in itertools.count(1):
        loaded = random.choice(actions)(number) or last
        assert loaded >= last, f"load {loaded} after {last}"
        last = loaded
        if stop.exists():
            print(json.dumps([number, last]))
            return


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
