"""Reads tables with the engines of this environment, which has nothing of this project.

A line of the input is a request in JSON, a line of the output its answer.
"""

import json
import os
import sys
import traceback
from functools import cache
from pathlib import Path
from typing import Any

import daft
import duckdb
import duckdb_extension_avro
import duckdb_extension_httpfs
import duckdb_extension_iceberg
import polars as pl
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo
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


def read(engine: str, table: Table, snapshot: int | None, columns: list[str] | None) -> pa.Table:
    if engine == "polars":
        rows = pl.scan_iceberg(table, snapshot_id=snapshot)
        return (rows.select(columns) if columns else rows).collect().to_arrow()
    if engine == "daft":
        return daft.read_iceberg(table, snapshot_id=snapshot).to_arrow()
    scan = table.scan(snapshot_id=snapshot)
    if engine == "duckdb":
        connection = scan.to_duckdb("scanned")
        connection.execute("SET TimeZone = 'UTC'")
        return connection.execute("SELECT * FROM scanned").to_arrow_table()
    return scan.to_arrow()


@cache
def duckdb_with_iceberg() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute("SET TimeZone = 'UTC'")
    for package in (duckdb_extension_avro, duckdb_extension_httpfs, duckdb_extension_iceberg):
        (extension,) = Path(package.__file__).parent.rglob("*.duckdb_extension")
        connection.execute(f"LOAD '{extension}'")
    server = os.environ.get("AWS_ENDPOINT_URL_S3")
    if server:
        connection.execute(
            f"CREATE SECRET (TYPE s3, ENDPOINT '{server.partition('://')[2]}', USE_SSL false,"
            f" URL_STYLE 'path', REGION '{os.environ['AWS_REGION']}',"
            f" KEY_ID '{os.environ['AWS_ACCESS_KEY_ID']}',"
            f" SECRET '{os.environ['AWS_SECRET_ACCESS_KEY']}')"
        )
    return connection


def read_by_extension(request: dict[str, Any]) -> pa.Table:
    connection = duckdb_with_iceberg()
    if "metadata" in request:
        statement = f"SELECT * FROM iceberg_scan('{request['metadata']}')"
        return connection.execute(statement).to_arrow_table()
    access = f"TOKEN '{request['token']}'" if "token" in request else "AUTHORIZATION_TYPE 'none'"
    own = "ACCESS_DELEGATION_MODE 'none'"
    uri = request["uri"]
    connection.execute(f"ATTACH 'x' AS c (TYPE iceberg, ENDPOINT '{uri}', {access}, {own})")
    try:
        return connection.execute(f"SELECT * FROM c.{request['table']}").to_arrow_table()
    finally:
        connection.execute("DETACH c")


def answer(request: dict[str, Any]) -> Any:
    if request["engine"] == "list":
        catalog = open_catalog(request)
        return [
            ".".join(each)
            for space in catalog.list_namespaces()
            for each in catalog.list_tables(space)
        ]
    if request["engine"] == "files":
        return len(list(open_table(request).scan(EqualTo(*request["equal"])).plan_files()))
    if request["engine"] == "duckdb-iceberg":
        rows = read_by_extension(request)
    else:
        columns = request["columns"]
        rows = read(request["engine"], open_table(request), request["snapshot"], columns)
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
