"""Delta Lake by delta-rs: a merge into a table, and its replacement."""

import shutil

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from benchmarks.measuring import Watch


def upsert(watch: Watch, rows: str, changes: str, home: str, threads: int) -> dict[str, int]:
    pa.set_cpu_count(threads)
    shutil.rmtree(home, ignore_errors=True)
    write_deltalake(home, pq.read_table(rows))
    table = DeltaTable(home)
    with watch:
        merge = table.merge(
            pq.read_table(changes), "old.key = new.key", source_alias="new", target_alias="old"
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    values = DeltaTable(home).to_pyarrow_table(columns=["value"])["value"]
    shutil.rmtree(home)
    return {"rows": len(values), "sum": pc.sum(values).as_py()}


def overwrite(watch: Watch, source: str, home: str, rows: int, threads: int) -> dict[str, int]:
    pa.set_cpu_count(threads)
    shutil.rmtree(home, ignore_errors=True)
    write_deltalake(home, ds.dataset(source).head(min(rows, 10_000)))
    with watch:
        write_deltalake(home, ds.dataset(source).scanner().to_reader(), mode="overwrite")
    count = DeltaTable(home).to_pyarrow_dataset().count_rows()
    shutil.rmtree(home)
    return {"rows": count}
