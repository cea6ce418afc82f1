"""Lance: a dataset of a fragment for each data file, with a BTREE index over the key."""

import shutil
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.measuring import Watch
from benchmarks.peers.asking import Question, ask


def build(watch: Watch, files: list[str], home: str) -> None:
    shutil.rmtree(home, ignore_errors=True)
    with watch:
        for file in files:
            is_there = Path(home).exists()
            lance.write_dataset(pq.read_table(file), home, mode="append" if is_there else "create")
        lance.dataset(home).create_scalar_index("key", "BTREE")


def lookup(watch: Watch, home: str, questions: str, threads: int) -> dict[str, Any]:
    pa.set_cpu_count(threads)
    dataset = lance.dataset(home)

    def answer(question: Question) -> pa.Table:
        if question.keys is None:
            within = f"key >= '{question.low}' AND key < '{question.high}'"
            rows = dataset.to_table(filter=within)
            # They come fragment after fragment.
            return rows.sort_by([("key", "ascending"), ("sort", "ascending")])
        if len(question.keys) == 1:
            return dataset.to_table(filter=f"key = '{question.keys[0]}'")
        listing = ", ".join(f"'{key}'" for key in question.keys)
        return dataset.to_table(filter=f"key IN ({listing})")

    return ask(watch, questions, answer)


def upsert(watch: Watch, rows: str, changes: str, home: str, threads: int) -> dict[str, int]:
    pa.set_cpu_count(threads)
    shutil.rmtree(home, ignore_errors=True)
    dataset = lance.write_dataset(pq.read_table(rows), home)
    dataset.create_scalar_index("key", "BTREE")
    with watch:
        merge = dataset.merge_insert("key").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(pq.read_table(changes))
    values = lance.dataset(home).to_table(columns=["value"])["value"]
    shutil.rmtree(home)
    return {"rows": len(values), "sum": pc.sum(values).as_py()}


def overwrite(watch: Watch, source: str, home: str, rows: int, threads: int) -> dict[str, int]:
    pa.set_cpu_count(threads)
    shutil.rmtree(home, ignore_errors=True)
    lance.write_dataset(ds.dataset(source).head(min(rows, 10_000)), home)
    with watch:
        reader = ds.dataset(source).scanner().to_reader()
        lance.write_dataset(reader, home, mode="overwrite")
    count = lance.dataset(home).count_rows()
    shutil.rmtree(home)
    return {"rows": count}
