"""The endpoints of the HTTP API: those of these modules, in order."""

from sleeper.serve import feed, row_writes, rows, status, table_changes, tables
from sleeper.serve.endpoint import Endpoint

_MODULES = (status, tables, table_changes, feed, rows, row_writes)
ENDPOINTS = tuple(
    each for module in _MODULES for each in vars(module).values() if isinstance(each, Endpoint)
)
