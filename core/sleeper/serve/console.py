"""The console, the web page of `sleeper serve`: its files, and what they may load.

The files contain no data of the instance. A browser loads them only from this server, and runs no
other code: no inline script or style, and no content from elsewhere.
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

FOLDER = "/console/"
_PAGE = "index.html"
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # A browser asks whether its copy is current, so an upgraded server has no stale scripts.
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class _Asset:
    content: bytes
    media_type: str
    etag: str


def console_routes() -> list[BaseRoute]:
    """Returns the routes of the page and of its files."""
    return [
        Route("/", _page, name="console"),
        Route(f"{FOLDER}{{name}}", _file, name="consoleFile"),
    ]


async def _page(request: Request) -> Response:
    return _respond(request, _PAGE)


async def _file(request: Request) -> Response:
    return _respond(request, request.path_params["name"])


def _respond(request: Request, name: str) -> Response:
    asset = _assets().get(name)
    if asset is None:
        raise HTTPException(404, f"no file {name[:200]!r} in the console")
    headers = {**_HEADERS, "ETag": asset.etag}
    tags = {each.strip() for each in request.headers.get("if-none-match", "").split(",")}
    if asset.etag in tags:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, headers=headers, media_type=asset.media_type)


@cache
def _assets() -> dict[str, _Asset]:
    """Reads all files of the folder, about 100 KB, so that a request reads no path."""
    assets = {}
    for file in (resources.files(__package__) / "console").iterdir():
        media_type = _MEDIA_TYPES.get(f".{file.name.rpartition('.')[2]}")
        if media_type is not None:
            content = file.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            assets[file.name] = _Asset(content, media_type, etag)
    return assets
