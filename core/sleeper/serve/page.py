"""The page for people: tables, and a query, in a browser."""

import base64
import hashlib
import re
from functools import cache
from importlib import resources

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response


async def page(_request: Request) -> Response:
    """One page that loads nothing from elsewhere, and whose own code alone may run."""
    text = _text()
    return HTMLResponse(text, headers={"Content-Security-Policy": _policy(text)})


@cache
def _text() -> str:
    return (resources.files(__package__) / "page.html").read_text(encoding="utf-8")


@cache
def _policy(text: str) -> str:
    script, style = (_hash(re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[0]) for tag in _OWN)
    return (
        f"default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src 'self'; "
        "img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


_OWN = ("script", "style")


def _hash(code: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
