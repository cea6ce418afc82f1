"""The endpoints of queries that run from the queue."""

import json
import uuid

from starlette.requests import Request
from starlette.responses import Response

from sleeper.clock import iso_time
from sleeper.query.messages.query import QUERY_TYPE, query_message_from_json
from sleeper.query_service.service import submit_query
from sleeper.reports.access import check_query_access
from sleeper.serve.access import identify_caller
from sleeper.serve.bodies import json_body
from sleeper.serve.endpoint import COUNT, OBJECT, TEXT, Json, Model, list_schema, object_schema
from sleeper.serve.json_answer import respond
from sleeper.serve.rows import VERSION
from sleeper.serve.service import Service

QUERY_MESSAGE = Model(
    "QueryMessage",
    {
        **OBJECT,
        "required": ["regions"],
        "properties": {
            "queryId": TEXT,
            "tableName": TEXT,
            "tableId": TEXT,
            "asOf": VERSION,
            "regions": list_schema(OBJECT),
            "requestedValueFields": list_schema(TEXT),
            "resultsPublisherConfig": OBJECT,
        },
    },
)
SUBMITTED = Model("Submitted", object_schema({"queryId": TEXT}))
QUERY_STATUS = Model(
    "QueryStatus",
    object_schema(
        {
            "queryId": TEXT,
            "state": TEXT,
            "rowCount": COUNT,
            "updated": TEXT,
            "error": {"type": ["string", "null"]},
        }
    ),
)


async def submit(service: Service, request: Request) -> Response:
    """Sends a query to the queue (docs/formats.md, "Query messages")."""
    raw = await json_body(request, service.limits.body_bytes_max)
    query_id = raw.get("queryId") or uuid.uuid4().hex
    sent = {**raw, "type": QUERY_TYPE, "queryId": query_id}
    message = query_message_from_json(sent, str(query_id))

    def work() -> Json:
        submit_query(service.instance, message, json.dumps(sent))
        return {"queryId": message.query_id}

    return await respond(work, status=202)


async def query_status(service: Service, request: Request) -> Response:
    """Responds with the state of a query of the queue."""
    query_id, caller = request.path_params["id"], identify_caller(request)

    def work() -> Json:
        status = service.instance.queries.tracker().query(query_id)
        check_query_access(service.instance, status, caller)
        return {
            "queryId": status.query_id,
            "state": status.state.value,
            "rowCount": status.row_count,
            "updated": iso_time(status.updated_ms),
            "error": status.error,
        }

    return await respond(work)
