"""The simulated DynamoDB and a server give the same answers to random requests.

Not compared: members of missing attributes, which AWS refuses to set and the server creates.
"""

import random
import re
import uuid
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.servers.dynoxide import DynamoServer
from tests.simulation.services.worlds import World, dynamo_table

_ROUNDS = 400
_VALUES = [
    {"S": "a"},
    {"S": "ab"},
    {"S": "é"},
    {"N": "1"},
    {"N": "-2.50"},
    {"N": "10"},
    {"B": b"\x00\xff"},
    {"BOOL": True},
    {"NULL": True},
    {"SS": ["a", "b"]},
    {"L": [{"N": "1"}, {"S": "a"}]},
    {"M": {"a": {"N": "1"}}},
]
_ATTRIBUTES = ("a", "b", "c", "s")


class Generator:
    """Makes random requests of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.values: dict[str, Any] = {}

    def value(self, kinds: str = "") -> str:
        """Adds a value to the request; returns its placeholder."""
        name = f":v{len(self.values)}"
        self.values[name] = self.random.choice(
            [v for v in _VALUES if not kinds or next(iter(v)) in kinds.split()]
        )
        return name

    def path(self) -> str:
        return self.random.choice([*_ATTRIBUTES, "a.a", "b[0]", "c[1]"])

    def condition(self, depth: int = 0) -> str:
        choice = self.random.randrange(9 if depth < 3 else 6)
        if choice == 0:
            return f"attribute_{self.random.choice(['', 'not_'])}exists({self.path()})"
        if choice == 1:
            return f"begins_with({self.path()}, {self.value('S')})"
        if choice == 2:
            return f"{self.path()} IN ({self.value()}, {self.value()})"
        if choice == 3:
            return f"contains({self.path()}, {self.value('S N')})"
        if choice == 4:
            return f"size({self.path()}) > {self.value('N')}"
        if choice == 5:
            operator = self.random.choice(["=", "<>", "<", "<=", ">", ">="])
            return f"{self.path()} {operator} {self.value('S N B' if operator[0] != '=' else '')}"
        if choice == 6:
            return f"NOT ({self.condition(depth + 1)})"
        word = self.random.choice(["AND", "OR"])
        return f"({self.condition(depth + 1)}) {word} {self.condition(depth + 1)}"

    def update(self) -> str:
        names = self.random.sample(["a", "b", "c"], 2)
        first = self.random.choice(
            [
                f"SET {names[0]} = {self.value()}",
                f"SET {names[0]} = if_not_exists({names[0]}, {self.value()})",
                f"SET {names[0]} = {names[1]}",
                f"SET {names[0]} = {names[0]} + {self.value('N')}",
                f"SET {names[0]} = list_append({names[0]}, {self.value('L')})",
                f"SET {names[0]} = {names[1]}[0]",
                f"ADD {names[0]} {self.value('N SS')}",
                f"DELETE {names[0]} {self.value('SS')}",
            ]
        )
        return first if self.random.random() < 0.5 else f"{first} REMOVE {names[1]}"


def _answer(client: Any, table: str, request: dict[str, Any]) -> Any:
    try:
        response = client.update_item(TableName=table, ReturnValues="ALL_NEW", **request)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return {name: _unordered(value) for name, value in response["Attributes"].items()}


def _unordered(value: dict[str, Any]) -> dict[str, Any]:
    return {"SS": sorted(value["SS"])} if "SS" in value else value


@pytest.mark.parametrize("seed", range(3))
def test_updates_have_the_same_results(dynamo_server: DynamoServer, seed: int) -> None:
    simulated = World().services().client("dynamodb")
    name = dynamo_table(simulated, f"expressions-{uuid.uuid4().hex[:8]}")
    dynamo_table(dynamo_server.client, name)
    generator, outcomes = Generator(seed), {"item": 0, "error": 0}
    for _ in range(_ROUNDS):
        generator.values = {}
        key = {"k": {"S": "k"}, "s": {"S": generator.random.choice("ab")}}
        request: dict[str, Any] = {"Key": key, "UpdateExpression": generator.update()}
        if generator.random.random() < 0.7:
            request["ConditionExpression"] = generator.condition()
        used = f"{request['UpdateExpression']} {request.get('ConditionExpression', '')}"
        values = {n: generator.values[n] for n in re.findall(r":v\d+", used)}
        if values:
            request["ExpressionAttributeValues"] = values
        expected = _answer(dynamo_server.client, name, request)
        assert _answer(simulated, name, request) == expected, request
        outcomes["error" if isinstance(expected, str) else "item"] += 1
    assert min(outcomes.values()) > _ROUNDS / 10
