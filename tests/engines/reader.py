"""Reads tables with the engines of this environment, which has nothing of this project.

A line of the input is a request in JSON, a line of the output its answer.
"""

import json
import os
import sys
import traceback
from typing import Any

import daft
import polars as pl
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable, Table

os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"


def open_table(request: dict[str, Any]) -> Table:
    if "metadata" in request:
        return StaticTable.from_metadata(request["metadata"])
    return open_catalog(request).load_table(request["table"])


def open_catalog(request: dict[str, Any]) -> Any:
    # Without any of them, PyIceberg sends a token all the same.
    access = {"token": request["token"]} if "token" in request else {"auth": {"type": "noop"}}
    return load_catalog("sleeper", type="rest", uri=request["uri"], **access)


def read(engine: str, table: Table, snapshot: int | None) -> pa.Table:
    if engine == "polars":
        return pl.scan_iceberg(table, snapshot_id=snapshot).collect().to_arrow()
    if engine == "daft":
        return daft.read_iceberg(table, snapshot_id=snapshot).to_arrow()
    scan = table.scan(snapshot_id=snapshot)
    if engine == "duckdb":
        connection = scan.to_duckdb("scanned")
        connection.execute("SET TimeZone = 'UTC'")
        return connection.execute("SELECT * FROM scanned").to_arrow_table()
    return scan.to_arrow()


def answer(request: dict[str, Any]) -> Any:
    if request["engine"] == "list":
        catalog = open_catalog(request)
        return [
            ".".join(each)
            for space in catalog.list_namespaces()
            for each in catalog.list_tables(space)
        ]
    rows = read(request["engine"], open_table(request), request["snapshot"])
    with pa.OSFile(request["out"], "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return "read"


def main() -> None:
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # engines print
    for line in sys.stdin:
        try:
            result = {"answer": answer(json.loads(line))}
        except Exception:
            result = {"error": traceback.format_exc(limit=-8)}
        print(json.dumps(result), file=output, flush=True)


if __name__ == "__main__":
    main()
