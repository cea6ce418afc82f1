"""Requests to the application of an instance, without a server."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import httpx

from sleeper.instance import Instance
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.serve.access import Access
from sleeper.serve.application import make_server_application
from sleeper.serve.service import ServerLimits
from sleeper.serve.tokens import Right, Tokens
from tests.servers.serving import OPEN

TOKEN = "a-token-of-some-length"


def request(
    instance: Instance,
    method: str,
    path: str,
    *,
    content: bytes | None = None,
    headers: dict[str, str] | None = None,
    limits: ServerLimits | None = None,
    token: str | None = None,
    read_only_reason: str | None = None,
) -> httpx.Response:
    """Returns the response of a server with the limits, the token and the reason."""
    application = make_server_application(
        instance, limits or ServerLimits(), read_only_reason=read_only_reason
    )
    tokens = Tokens({token: Right.ADMIN}) if token else OPEN
    transport = httpx.ASGITransport(Access(application, tokens), raise_app_exceptions=False)

    async def run() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, content=content, headers=headers)

    # In a thread, because it would unset the event loop of this one, which other tests use.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, run).result()


def post(
    instance: Instance,
    path: str,
    body: Any,
    headers: dict[str, str] | None = None,
    **options: Any,
) -> httpx.Response:
    """Returns the response to a JSON body."""
    sent = {"Content-Type": "application/json", **(headers or {})}
    content = json.dumps(body).encode()
    return request(instance, "POST", path, content=content, headers=sent, **options)


def read_keys(instance: Instance, name: str = "t") -> list[int]:
    """Returns the keys `k` of a table, in order."""
    with open_query(instance, name, Query()) as result:
        found: list[int] = result.read_all()["k"].to_pylist()
        return found


def read_version(instance: Instance) -> int:
    """Returns the number of the newest transaction of table `t`."""
    with instance.table("t").state.reading() as state:
        return int(state.number)
