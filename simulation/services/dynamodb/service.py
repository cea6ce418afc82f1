"""The tables of a simulated DynamoDB, which all clients share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simulation.services.dynamodb.capacity import Capacity
from simulation.services.dynamodb.tables import Index, KeySchema, Table
from simulation.services.dynamodb.transactions import Tokens
from simulation.services.requests import client_error


@dataclass(slots=True)
class DynamoService:
    """Tables by name, the tokens of transactions, and the capacity that requests used."""

    tables: dict[str, Table] = field(default_factory=dict)
    tokens: Tokens = field(default_factory=Tokens)
    capacity: Capacity = field(default_factory=Capacity)

    def table(self, name: str, operation: str) -> Table:
        """Returns a table. ResourceNotFoundException if it does not exist."""
        if name not in self.tables:
            message = f"Requested resource not found: Table: {name} not found"
            raise client_error("ResourceNotFoundException", message, operation)
        return self.tables[name]

    def create(self, request: Mapping[str, Any]) -> Table:
        """Creates a table by a request of CreateTable."""
        name = request["TableName"]
        if name in self.tables:
            message = f"Table already exists: {name}"
            raise client_error("ResourceInUseException", message, "CreateTable")
        types = {d["AttributeName"]: d["AttributeType"] for d in request["AttributeDefinitions"]}
        key = _schema(request["KeySchema"], types)
        indexes = {
            index["IndexName"]: Index(
                _schema(index["KeySchema"], types),
                key,
                index["Projection"]["ProjectionType"] == "ALL",
            )
            for index in request.get("GlobalSecondaryIndexes", ())
        }
        self.tables[name] = Table(name, key, indexes)
        return self.tables[name]


def _schema(members: list[Mapping[str, str]], types: Mapping[str, str]) -> KeySchema:
    names = {member["KeyType"]: member["AttributeName"] for member in members}
    return KeySchema(names["HASH"], names.get("RANGE"), types)


def describe(table: Table) -> dict[str, Any]:
    """Returns the table as DescribeTable does."""
    return {
        "TableName": table.name,
        "TableStatus": "ACTIVE",
        "TableArn": f"arn:aws:dynamodb:eu-west-2:000000000000:table/{table.name}",
        "ItemCount": len(table.items),
        "DeletionProtectionEnabled": table.is_protected,
        "KeySchema": [
            {"AttributeName": name, "KeyType": kind}
            for name, kind in zip(table.key.names, ("HASH", "RANGE"), strict=False)
        ],
    }
