"""A DynamoDB server, and clients that inject failures."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.servers.dynoxide import DynamoServer, DynamoTables


@pytest.fixture
def tables(dynamo_server: DynamoServer) -> DynamoTables:
    """The DynamoDB tables of one test."""
    return dynamo_server.make_tables()


def paginate_by(client: Any, inner: Any, operation: str) -> Any:
    """Returns a paginator of `inner` whose requests go through `client`."""
    paginator = inner.get_paginator(operation)
    paginator._method = getattr(client, operation)
    return paginator


@dataclass
class FaultyClient:
    """A client that fails the next call of an operation, before or after its effect."""

    inner: Any
    failures: dict[str, list[tuple[Exception, bool]]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def fail(self, operation: str, error: Exception, done_before: bool = False) -> None:
        self.failures.setdefault(operation, []).append((error, done_before))

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            self.calls.append(operation)
            pending = self.failures.get(operation)
            error, done_before = pending.pop(0) if pending else (None, True)
            answer = getattr(self.inner, operation)(**arguments) if done_before else None
            if error is not None:
                raise error
            return answer

        return call

    def get_paginator(self, operation: str) -> Any:
        return paginate_by(self, self.inner, operation)
