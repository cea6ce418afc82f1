"""Tables of visits that are enriched from a table of accounts."""

import json
from typing import Any

import pyarrow as pa

import sleeper
from sleeper.admin.properties import set_table_properties

PROPERTY = "sleeper.table.ingest.enrichment"
ACCOUNTS = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [
        {"name": "country", "type": "StringType", "nullable": True},
        {"name": "size", "type": "IntType"},
    ],
}
VISITS = {
    "rowKeyFields": [{"name": "at", "type": "LongType"}],
    "valueFields": [
        {"name": "account", "type": "LongType", "nullable": True},
        {"name": "account_country", "type": "StringType", "nullable": True},
        {"name": "account_size", "type": "LongType", "nullable": True},
    ],
}
LOOKUP = {
    "store": "accounts",
    "input": "table:accounts",
    "on": "account",
    "fields": {"country": "account_country", "size": "account_size"},
}


def declare(*lookups: dict[str, Any]) -> dict[str, str]:
    return {PROPERTY: json.dumps(lookups)}


def set_properties(instance: sleeper.Instance, values: dict[str, str]) -> None:
    set_table_properties(instance._ports, "visits", values)


def account_rows(values: dict[int, tuple[str | None, int]]) -> pa.Table:
    countries = pa.array([country for country, _ in values.values()], pa.string())
    sizes = pa.array([size for _, size in values.values()], pa.int32())
    return pa.table({"id": list(values), "country": countries, "size": sizes})


def visit_rows(*accounts: int | None) -> pa.Table:
    return pa.table({"at": range(len(accounts)), "account": pa.array(accounts, pa.int64())})


def found(table: sleeper.Table) -> list[tuple[Any, ...]]:
    rows = table.query().to_arrow().to_pylist()
    return [tuple(row.values()) for row in rows]
