"""The endpoints of the HTTP API: those of these modules, in order. Systems add to them."""

from starlette.routing import BaseRoute

from sleeper.instance import Instance
from sleeper.serve import feed, row_writes, rows, status, table_changes, tables
from sleeper.serve.endpoint import Endpoint
from sleeper.systems import load, systems

_MODULES = (status, tables, table_changes, feed, rows, row_writes)
ENDPOINTS = tuple(
    each for module in _MODULES for each in vars(module).values() if isinstance(each, Endpoint)
)


def system_routes(instance: Instance, accepts_changes: bool) -> list[BaseRoute]:
    """Returns the routes that systems add to a server, which may accept changes of the instance."""
    sources = (each.routes for each in systems() if each.routes is not None)
    return [route for source in sources for route in load(source)(instance, accepts_changes)]
