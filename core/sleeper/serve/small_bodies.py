"""Bodies of small requests, which are answered before the routes."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from starlette.types import Message, Receive, Scope

from sleeper.serve.access import read_header

_BODY_SECONDS_MAX = 30
_PREFIX = "/tables/"


def find_posted_table(scope: Scope, suffix: str) -> str | None:
    """Returns the table of a POST over HTTP to a path below it; `None` for other requests."""
    if scope["type"] != "http" or scope["method"] != "POST" or "aws.event" in scope:
        return None
    path: str = scope["path"]
    if not path.startswith(_PREFIX) or not path.endswith(suffix):
        return None
    name = path[len(_PREFIX) : -len(suffix)]
    return name if name and "/" not in name else None


def is_small(scope: Scope, bytes_max: int) -> bool:
    """Returns whether the request says that its body has at most so many bytes."""
    length = read_header(scope, b"content-length")
    return length.isascii() and length.isdigit() and int(length[:9]) <= bytes_max


async def read_small_body(receive: Receive, bytes_max: int) -> list[Message]:
    """Returns the messages of the body, or the first of them if they are late or large."""
    messages: list[Message] = []
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_BODY_SECONDS_MAX):
            while size <= bytes_max:
                messages.append(await receive())
                size += len(messages[-1].get("body", b""))
                if not messages[-1].get("more_body"):
                    break
    return messages


def join_body(messages: Sequence[Message]) -> bytes | None:
    """Returns the body; `None` if the messages are not all of it."""
    if not messages or messages[-1]["type"] != "http.request" or messages[-1].get("more_body"):
        return None
    return b"".join(each.get("body", b"") for each in messages)


def replay(messages: Sequence[Message], receive: Receive) -> Receive:
    """Returns a function that receives the messages again, and then further ones."""
    left = list(reversed(messages))

    async def receive_next() -> Message:
        return left.pop() if left else await receive()

    return receive_next
