"""A real DynamoDB server: dynoxide, on SQLite in memory. `make install` fetches it with npm."""

import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from sleeper.export_queue.properties import EXPORT_QUEUES
from sleeper.properties.declaration import Property
from sleeper.properties.deployed import DEPLOYED_TABLES, TIME_TO_LIVE, DeployedTable, Key
from tests.servers.process import free_ports, running

PROGRAM = Path(__file__).parents[2] / "node_modules/@dynoxide/linux-x64/dynoxide"


@dataclass(frozen=True)
class DynamoTables:
    """The DynamoDB tables of an instance. A client is safe for threads."""

    client: Any
    names: dict[str, str]
    another_client: Callable[[], Any]

    def name(self, declaration: Property[str | None]) -> str:
        """The name of the table that the property names."""
        return self.names[declaration.name]

    def rows(self, declaration: Property[str | None], *attributes: str) -> list[tuple[str, ...]]:
        """Returns these attributes of each item of a table, in order, without the adapter."""
        items = self.client.scan(TableName=self.name(declaration), ConsistentRead=True)["Items"]
        return sorted(tuple(i.get(a, {}).get("S", "") for a in attributes) for i in items)


@dataclass(frozen=True)
class DynamoServer:
    """A server that runs."""

    url: str
    client: Any
    process: "subprocess.Popen[bytes]"

    def make_tables(self) -> DynamoTables:
        """Tables for one test alone."""
        names = make_tables(self.client, uuid.uuid4().hex[:8])
        return DynamoTables(self.client, names, lambda: dynamo_client(self.url))


@contextmanager
def dynoxide(folder: Path, database: Path | None = None) -> Iterator[DynamoServer]:
    """Starts a server on a free port, with its log in a folder.

    Its data is in a database, or lost at the end.
    """
    if not PROGRAM.exists():
        raise FileNotFoundError(f"{PROGRAM} is not there: `make install`, with Node's npm at hand")
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    client = dynamo_client(url)

    def is_ready() -> bool:
        try:
            client.list_tables()
        except (BotoCoreError, ClientError):
            return False
        return True

    command = [str(PROGRAM), "--port", str(port)]
    command += ["--db-path", str(database)] if database else []
    with running(command, folder / "dynoxide.log", is_ready) as process:
        yield DynamoServer(url, client, process)


def dynamo_client(url: str) -> Any:
    """A client of the server at that address."""
    return boto3.client(
        "dynamodb",
        endpoint_url=url,
        region_name="eu-west-2",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(
            retries={"mode": "standard", "total_max_attempts": 2},
            # As the clients of the product.
            parameter_validation=False,
            user_agent="sleeper",
        ),
    )


def make_tables(client: Any, suffix: str) -> dict[str, str]:
    """Makes every DynamoDB table that an instance has; their names by the property's name."""
    return {t.place.name: _make_table(client, t, suffix) for t in (*DEPLOYED_TABLES, EXPORT_QUEUES)}


def _make_table(client: Any, table: DeployedTable, suffix: str) -> str:
    name = f"{table.place.name}-{suffix}"
    keys = [table.key] + ([table.index.key] if table.index else [])
    types = {k.hash: "S" for k in keys} | {k.range: k.range_type for k in keys if k.range}
    indexes = {}
    if table.index is not None:
        indexes["GlobalSecondaryIndexes"] = [
            {
                "IndexName": table.index.name,
                "KeySchema": _key_schema(table.index.key),
                "Projection": {"ProjectionType": "ALL" if table.index.holds_all else "KEYS_ONLY"},
            }
        ]
    client.create_table(
        TableName=name,
        KeySchema=_key_schema(table.key),
        AttributeDefinitions=[{"AttributeName": n, "AttributeType": t} for n, t in types.items()],
        BillingMode="PAY_PER_REQUEST",
        **indexes,
    )
    if table.expires:
        expiry = {"Enabled": True, "AttributeName": TIME_TO_LIVE}
        client.update_time_to_live(TableName=name, TimeToLiveSpecification=expiry)
    return name


def _key_schema(key: Key) -> list[dict[str, str]]:
    schema = [{"AttributeName": key.hash, "KeyType": "HASH"}]
    if key.range is not None:
        schema.append({"AttributeName": key.range, "KeyType": "RANGE"})
    return schema
