"""No interleaving of transactions loses an update, and exports are those of the history."""

import random
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sleeper
from sleeper.errors import ConflictError
from sleeper.export_queue.definition import (
    EXPORT_QUEUES,
    ExporterSettings,
    ExportQueue,
    ExportSource,
)
from sleeper.export_queue.sources import read_exports
from sleeper.export_queue.transactions import CreateExportQueue
from sleeper.opening import open_instance
from sleeper.schema.model import Field, PrimitiveType
from sleeper.statestore.store import StateStore

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [{"name": "n", "type": "LongType"}],
}
LONG = PrimitiveType.LONG
KEYS = range(3)


class Counters:
    """A table of counters whose increments are exported to the queue `out`."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        where = folder / "instance"
        instance = stack.enter_context(sleeper.create_instance(where))
        self.instance = instance
        self.table = instance.create_table("counters", SCHEMA)
        ports = open_instance(str(where))
        stack.callback(ports.close)
        self.state: StateStore = ports.table("counters").state
        source, value = ExportSource.TRANSACTION, Field("n", LONG, nullable=True)
        queue = ExportQueue("out", source, (Field("k", LONG),), (value,), ExporterSettings("null:"))
        definition = EXPORT_QUEUES.format(queue)
        self.state.commit_or_raise(CreateExportQueue("out", source.value, definition))

    def increment(self, transaction: sleeper.Transaction, key: int) -> None:
        found = transaction.query(keys=[[key]]).to_arrow().column("n").to_pylist()
        count = (found[0] if found else 0) + 1
        transaction.delete(keys=[[key]])
        transaction.ingest(pa.table({"k": [key], "n": [count]}))
        transaction.export("out", key, count)

    def counts(self) -> dict[int, int]:
        return {row["k"]: row["n"] for row in self.table.query().to_arrow().to_pylist()}

    def copied(self) -> dict[int, int]:
        """The counts in a table to which the changes of the rows are exported."""
        self.instance.export_queue("copy").drain()
        rows = self.instance.table("copy").query().to_arrow().to_pylist()
        return {row["k"]: row["n"] for row in rows}

    def exported(self) -> dict[int, list[int]]:
        """The exported counts of each key, by sequence number."""
        found = defaultdict(list)
        position, end = -1, 0
        while end > position:
            position = end
            step = read_exports(self.state, position)
            end = step.end
            for exports in (each for logged in step.exports for each in logged.queues):
                with pa.ipc.open_stream(exports.rows) as reader:
                    for row in reader.read_all().to_pylist():
                        found[row["k"]].append(row["n"])
        return found


def check(counters: Counters, committed: Counter[int]) -> None:
    expected = {key: count for key, count in committed.items() if count}
    assert counters.counts() == expected
    assert counters.exported() == {k: [*range(1, n + 1)] for k, n in expected.items()}


@settings(max_examples=10)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["begin", "increment", "commit"])),
        max_size=24,
    ),
    st.randoms(use_true_random=False),
)
@pytest.mark.slow
def test_interleaved_transactions_lose_no_increment(
    steps: list[tuple[int, str]], chooser: random.Random
) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        counters = Counters(Path(folder), stack)
        opened: dict[int, tuple[sleeper.Transaction, list[int], int]] = {}
        committed: Counter[int] = Counter()
        commits = 0
        for place, step in steps:
            if place not in opened:
                opened[place] = counters.table.transaction(), [], commits
            transaction, keys, begun = opened[place]
            if step == "increment" and not keys:
                keys.append(chooser.choice(KEYS))
                counters.increment(transaction, keys[0])
            elif step == "commit":
                del opened[place]
                try:
                    transaction.commit()
                except ConflictError:
                    assert commits > begun
                    continue
                committed.update(keys)
                commits += len(keys)
        for transaction, _, _ in opened.values():
            transaction.close()
        check(counters, committed)


@pytest.mark.slow
def test_concurrent_increments_are_all_counted(tmp_path: Path) -> None:
    with ExitStack() as stack:
        counters = Counters(tmp_path, stack)
        keys = [key for key in KEYS for _ in range(12)]
        random.shuffle(keys)

        def run(key: int) -> None:
            counters.table.transact(lambda transaction: counters.increment(transaction, key), 100)

        counters.instance.create_export_queue(
            "copy", "counters", on="ingest", keys="k", values="n", exporter="table:copy"
        )
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(run, keys))
        check(counters, Counter(keys))
        assert counters.copied() == counters.counts()
