"""The endpoint that responds with the change feed of a table."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from starlette.requests import Request

from sleeper.errors import InvalidRequestError
from sleeper.query.changes.read import feed_schema
from sleeper.query.changes.reader import ChangeReader
from sleeper.query.changes.service import make_changes_request, open_changes
from sleeper.query.result import TimeLimit
from sleeper.reports.access import check_feed_access
from sleeper.serve.access import identify_caller
from sleeper.serve.endpoint import Parameter, endpoint, number_parameter
from sleeper.serve.row_answer import RowAnswer, choose_format
from sleeper.serve.schema import COUNT, POSITIVE
from sleeper.serve.service import RowStream, Service

_PARAMETERS = (
    Parameter("from", "The first transaction; by default that of the table.", schema=COUNT),
    Parameter("to", "The last transaction; by default the newest.", schema=POSITIVE),
    Parameter("since", "Only transactions after a time (ISO 8601) or of an age such as 2h."),
    Parameter(
        "limit",
        "Ends after the transaction with which the response has so many lines. It never ends "
        "within a transaction, so the next request can begin with the number after the last one.",
        schema=POSITIVE,
    ),
)


@dataclass(slots=True)
class FeedRows:
    """The changes of a reader as rows, which end after the transaction that reaches the limit."""

    reader: ChangeReader
    rows_least: int | None = None

    @property
    def schema(self) -> pa.Schema:
        return feed_schema(self.reader.schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        rows, number = 0, 0
        for change in self.reader:
            if self.rows_least is not None and rows >= self.rows_least and change.number > number:
                return
            batch = change.to_arrow()
            rows, number = rows + batch.num_rows, change.number
            yield batch

    def close(self) -> None:
        self.reader.close()


@endpoint(
    "GET",
    "/tables/{name}/changes",
    errors=(400, 404, 406, 409, 413, 503),
    parameters=_PARAMETERS,
)
async def table_changes(service: Service, request: Request) -> RowAnswer:
    """Returns what each transaction of a table changed, in order: rows and deleted regions."""
    form = choose_format(request.headers.get("accept"))
    name, caller = request.path_params["name"], identify_caller(request)
    names = [each.name for each in _PARAMETERS]
    for each in request.query_params:
        if each not in names:
            raise InvalidRequestError(
                f"unknown parameter {each[:200]!r} (expected {', '.join(names)})"
            )
    first, last, limit = (number_parameter(request, each) for each in ("from", "to", "limit"))
    if limit == 0:
        raise InvalidRequestError('"limit" is 0 (expected 1 or more)')
    part = make_changes_request(request.query_params.get("since"), first, last)

    def open_rows(time: TimeLimit) -> RowStream:
        check_feed_access(service.instance.table(name), caller)
        return FeedRows(open_changes(service.instance, name, part, limit=time), limit)

    return RowAnswer(service, open_rows, form)
