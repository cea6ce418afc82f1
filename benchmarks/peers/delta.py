"""Delta Lake by delta-rs: a merge into a table."""

import shutil

import pyarrow as pa
import pyarrow.compute as pc
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
