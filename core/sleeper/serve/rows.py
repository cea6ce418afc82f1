"""Routes that answer with rows: a query of one table, and SQL over all."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import Request

from sleeper.errors import InvalidRequestError
from sleeper.query.as_of import as_of_value
from sleeper.query.interruption import TimeLimit
from sleeper.query.result import QueryResult
from sleeper.serve.asked import query_of_body
from sleeper.serve.bodies import check_members, json_body, text_of
from sleeper.serve.caller import caller_of
from sleeper.serve.fetching import RowStream, Service
from sleeper.serve.row_answer import RowAnswer
from sleeper.serve.row_formats import accepted_format
from sleeper.wiring.instance import Instance
from sleeper.wiring.query import open_query, schema_of


@dataclass(frozen=True, slots=True)
class RowRoutes:
    """Answers are as large as their rows: see `RowAnswer`."""

    instance: Instance
    service: Service

    async def query(self, request: Request) -> RowAnswer:
        """Rows of a table by key, range or region."""
        form = accepted_format(request.headers.get("accept"))
        raw = await json_body(request, self.service.terms.body_bytes_max)
        name = request.path_params["name"]
        open_rows = partial(_open_query, self.instance, name, raw, caller_of(request))
        return RowAnswer(self.service, open_rows, form)

    async def sql(self, request: Request) -> RowAnswer:
        """Rows of a statement."""
        form = accepted_format(request.headers.get("accept"))
        raw = await json_body(request, self.service.terms.body_bytes_max)
        check_members(raw, ("statement", "asOf"))
        statement = text_of(raw, "statement")
        if not statement:
            raise InvalidRequestError('"statement" is missing: one SELECT, as text')
        caller = caller_of(request)
        as_of = raw.get("asOf")
        as_of_value(as_of)  # refuses now what is wrong with it

        def open_rows(limit: TimeLimit) -> RowStream:
            return self.service.open_statement(statement, limit, caller, as_of)

        return RowAnswer(self.service, open_rows, form)


def _open_query(
    instance: Instance, name: str, raw: Mapping[str, Any], caller: str, limit: TimeLimit
) -> QueryResult:
    query = query_of_body(schema_of(instance, name), raw)
    return open_query(instance, name, query, limit, caller)
