"""The endpoint that reports on tables and background work."""

from starlette.requests import Request
from starlette.responses import Response

from sleeper.errors import InvalidRequestError
from sleeper.reports.access import check_report_access
from sleeper.reports.output import ReportKind, json_rows
from sleeper.reports.service import TablePage, count_tables, report
from sleeper.serve.access import identify_caller
from sleeper.serve.endpoint import (
    COUNT,
    OBJECT,
    TEXT,
    Json,
    Model,
    Parameter,
    list_schema,
    object_schema,
)
from sleeper.serve.json_answer import respond
from sleeper.serve.parameters import number_parameter
from sleeper.serve.service import Service

_LIMIT_DEFAULT = 100
_REPORT: Json = {"report": TEXT, "summary": TEXT, "rows": list_schema(OBJECT)}
REPORTS = Model(
    "Reports",
    object_schema(
        {"reports": list_schema(object_schema(_REPORT))},
        {"tables": {**COUNT, "description": "How many tables all pages of the report have."}},
    ),
)
REPORT_PARAMETERS = (
    Parameter("report", "The name of the report.", schema={"enum": list(ReportKind)}),
    Parameter("table", "The only table to report on."),
    Parameter("limit", "The maximum number of rows per report, and of tables.", schema=COUNT),
    Parameter("offset", "The number of tables to skip, in the order of names.", schema=COUNT),
)


async def report_status(service: Service, request: Request) -> Response:
    """Responds with a page of a report of the command line.

    The caller must be allowed to see all of its tables.
    """
    query = request.query_params
    limit = number_parameter(request, "limit", _LIMIT_DEFAULT)
    page = TablePage(number_parameter(request, "offset", 0), limit)
    kind = query.get("report", ReportKind.TABLES.value)
    if kind not in set(ReportKind):
        raise InvalidRequestError(f"unknown report {kind!r} (expected {', '.join(ReportKind)})")
    table, caller = query.get("table"), identify_caller(request)

    def work() -> Json:
        check_report_access(service.instance, ReportKind(kind), table, caller)
        listings = report(service.instance, ReportKind(kind), table, limit, page)
        total = count_tables(service.instance, ReportKind(kind), table)
        return {
            **({} if total is None else {"tables": total}),
            "reports": [
                {"report": each.name, "summary": each.summary, "rows": list(json_rows(each))}
                for each in listings
            ],
        }

    return await respond(work)
