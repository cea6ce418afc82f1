"""A client of the connector: writes requests, and reads responses and spilled blocks.

Follows the SDK's serialisers, independently of the code under test.
"""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sleeper.athena.connector import Connector, ConnectorSettings, SpillBucket
from sleeper.athena.service import answer
from sleeper.instance import Instance, OpenTable
from sleeper.query.service import make_query_table
from sleeper.storage.location import DataRoot

Json = dict[str, Any]
DATE_MILLI = pa.date64()


def text(message: Any) -> str:
    return base64.b64encode(message.serialize()).decode()


def block(values: Sequence[Any], kind: pa.DataType) -> Json:
    """A block of one column. Times are integers in the type's unit."""
    is_time = pa.types.is_timestamp(kind) or kind == DATE_MILLI
    column = pa.array(values, pa.int64()).view(kind) if is_time else pa.array(values, kind)
    batch = pa.record_batch({"col1": column})
    return {
        "aId": "a",
        "schema": text(batch.schema),
        "records": text(batch) if values else "",
    }


def marker(value: Any, kind: pa.DataType, bound: str) -> Json:
    values = [] if value is None else [value]
    return {"valueBlock": block(values, kind), "bound": bound, "nullValue": value is None}


def ranges(kind: pa.DataType, *pairs: tuple[Any, str, Any, str], null: bool = False) -> Json:
    """Ranges of low, its bound, high, its bound; None is unbounded."""
    return {
        "@type": "SortedRangeSet",
        "type": {"@type": "Any"},
        "ranges": [
            {"low": marker(low, kind, lower), "high": marker(high, kind, upper)}
            for low, lower, high, upper in pairs
        ],
        "nullAllowed": null,
    }


def among(kind: pa.DataType, *values: Any, null: bool = False) -> Json:
    """`column IN (values)`."""
    return ranges(kind, *((v, "EXACTLY", v, "EXACTLY") for v in values), null=null)


def from_to(kind: pa.DataType, low: Any, high: Any) -> Json:
    """`low <= column AND column < high`."""
    return ranges(kind, (low, "ABOVE" if low is None else "EXACTLY", high, "BELOW"))


def connector_of(instance: Instance, folder: Path, leaves_per_split: int = 1) -> Connector:
    """Returns a connector that spills to a folder."""
    return Connector(
        instance.tables.index,
        lambda ref: make_query_table(OpenTable(instance, ref)),
        instance.queries.engine,
        SpillBucket("spilled", DataRoot(folder)),
        ConnectorSettings(leaves_per_split=leaves_per_split),
    )


@dataclass
class Athena:
    """Sends requests to the connector as Athena does."""

    connector: Connector
    database: str = "sleeper"

    def ask(self, kind: str, **members: Any) -> Json:
        return answer(self.request(kind, **members), self.connector)

    def request(self, kind: str, **members: Any) -> Json:
        return {
            "@type": kind,
            "identity": {"arn": "arn", "account": "1"},
            "queryId": "q1",
            "catalogName": "cat",
            **members,
        }

    def name(self, table: str) -> Json:
        return {"schemaName": self.database, "tableName": table}

    def schema(self, table: str) -> pa.Schema:
        result = self.ask("GetTableRequest", tableName=self.name(table))
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(result["schema"])))

    def layout_rows(self, table: str, summary: Json | None = None) -> int:
        result = self.ask(
            "GetTableLayoutRequest",
            tableName=self.name(table),
            constraints={"summary": summary or {}},
            schema=text(self.schema(table)),
            partitionColumns=[],
        )
        return read_block(result["partitions"]).num_rows

    def splits_page(self, table: str, summary: Json | None, token: str | None) -> Json:
        return self.ask(
            "GetSplitsRequest",
            tableName=self.name(table),
            partitions=block([1], pa.int32()),
            partitionColumns=[],
            constraints={"summary": summary or {}},
            continuationToken=token,
        )

    def splits(self, table: str, summary: Json | None = None) -> list[Json]:
        results, token = [], None
        while True:
            page = self.splits_page(table, summary, token)
            results += page["splits"]
            token = page["continuationToken"]
            if token is None:
                return results

    def read(
        self,
        table: str,
        split: Json,
        summary: Json | None = None,
        columns: Sequence[str] | None = None,
        block_bytes: int = 10**11,
        inline_bytes: int = 10**11,
        schema: pa.Schema | None = None,
        **constraints: Any,
    ) -> Json:
        schema = schema or self.schema(table)
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        return self.ask(
            "ReadRecordsRequest",
            tableName=self.name(table),
            schema=text(schema),
            split=split,
            constraints={"summary": summary or {}, **constraints},
            maxBlockSize=str(block_bytes),
            maxInlineBlockSize=str(inline_bytes),
        )

    def query(self, table: str, summary: Json | None = None, **reading: Any) -> pa.Table:
        """Returns all rows, split after split."""
        batches = [
            batch
            for split in self.splits(table, summary)
            for batch in self.batches(self.read(table, split, summary, **reading))
        ]
        return pa.Table.from_batches(batches, batches[0].schema if batches else self.schema(table))

    def batches(self, answer: Json) -> Iterator[pa.RecordBatch]:
        if answer["@type"] == "ReadRecordsResponse":
            yield read_block(answer["records"])
            return
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(answer["schema"])))
        key = answer["encryptionKey"]
        for item in answer["remoteBlocks"]:
            content = self.connector.spill.root.read(item["key"])
            if key is not None:
                secret, nonce = (base64.b64decode(key[part]) for part in ("key", "nonce"))
                content = AESGCM(secret).decrypt(nonce, content, None)
            yield pa.ipc.read_record_batch(pa.py_buffer(content), schema)


def plain_rows(rows: pa.RecordBatch | pa.Table) -> list[Json]:
    """Returns the rows, with milliseconds in times, which Arrow's own conversion drops."""
    for place, column in enumerate(rows.schema):
        if column.type == DATE_MILLI:
            millis = rows.column(place).cast(pa.int64()).cast(pa.timestamp("ms"))
            rows = rows.set_column(place, column.name, millis)
    return rows.to_pylist()


def read_block(raw: Json) -> pa.RecordBatch:
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(raw["schema"])))
    if not raw["records"]:
        return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
    return pa.ipc.read_record_batch(pa.py_buffer(base64.b64decode(raw["records"])), schema)
