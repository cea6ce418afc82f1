"""The endpoints by which load balancers and monitors check a server. They need no token."""

import logging

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sleeper.errors import SleeperError
from sleeper.serve.endpoint import TEXT, Model, object_schema
from sleeper.serve.service import Service

logger = logging.getLogger(__name__)
HEALTH = Model("Health", object_schema({"status": TEXT}))
_NO_STORE = {"Cache-Control": "no-store"}


async def report_live(_service: Service, _request: Request) -> Response:
    """Responds that the server runs."""
    return JSONResponse({"status": "ok"}, headers=_NO_STORE)


async def report_health(service: Service, _request: Request) -> Response:
    """Responds whether the instance can be read. The log, not the response, has the reason."""

    def read() -> bool:
        try:
            next(iter(service.instance.tables.index.list()), None)
        except SleeperError as error:
            logger.error("could not read the instance: %s", error)
            return False
        return True

    if await to_thread.run_sync(read):
        return JSONResponse({"status": "ok"}, headers=_NO_STORE)
    return JSONResponse({"status": "unavailable"}, 503, _NO_STORE)
