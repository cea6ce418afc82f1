"""SlateDB: an LSM tree of keys and values, on its object store of local files.

A key holds one value, which is the row's sort key and value; its Python binding has neither
Arrow nor many keys at once, so an answer is Python objects.
"""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from slatedb.uniffi import Db, DbBuilder, KeyRange, KeyValue, ObjectStore, Settings, WriteBatch

from benchmarks.measuring import Watch
from benchmarks.peers.asking import Question, Tally, ask

_ROWS_AT_ONCE = 10_000
_SORT_BYTES = 8
_LOW_BITS = 0xFFFFFFFF


def build(watch: Watch, files: list[str], home: str) -> None:
    shutil.rmtree(home, ignore_errors=True)
    Path(home).mkdir(parents=True)

    async def load() -> None:
        db = await _open(home)
        for file in files:
            for batch in pq.ParquetFile(file).iter_batches(_ROWS_AT_ONCE):
                await db.write(_batch_of(batch))
        await db.flush()
        await db.shutdown()

    with watch:
        asyncio.run(load())


def lookup(watch: Watch, home: str, questions: str, **_: Any) -> dict[str, Any]:
    """The number of threads cannot be configured."""
    with asyncio.Runner() as runner:
        db = runner.run(_open(home))

        def answer(question: Question) -> list[bytes]:
            return runner.run(_values(db, question))

        result = ask(watch, questions, answer, _tally)
        runner.run(db.shutdown())
    return result


async def _open(home: str) -> Db:
    settings = Settings.default()
    # What is lost is built again, so nothing is written twice.
    settings.set("wal_enabled", "false")
    builder = DbBuilder(home.lstrip("/"), ObjectStore.resolve("file:///"))
    builder.with_settings(settings)
    return await builder.build()


async def _values(db: Db, question: Question) -> list[bytes]:
    if question.keys is not None:
        values = await asyncio.gather(*(db.get(key.encode()) for key in question.keys))
        return [value for value in values if value is not None]
    low, high = question.low.encode(), question.high.encode()
    within = KeyRange(start=low, start_inclusive=True, end=high, end_inclusive=False)
    rows = await db.scan(within)
    results: list[KeyValue] = []
    while batch := await rows.next_batch(_ROWS_AT_ONCE):
        results += batch
    return [row.value for row in results]


def _batch_of(rows: pa.RecordBatch) -> WriteBatch:
    batch = WriteBatch()
    keys, values = (rows.column(i).cast(pa.binary()).to_pylist() for i in (0, 2))
    for key, sort, value in zip(keys, rows.column(1).to_pylist(), values, strict=True):
        batch.put(key, sort.to_bytes(_SORT_BYTES, "big") + value)
    return batch


def _tally(values: list[bytes]) -> Tally:
    sorts = (int.from_bytes(value[:_SORT_BYTES], "big") & _LOW_BITS for value in values)
    return Tally(len(values), sum(sorts))
