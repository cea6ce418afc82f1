"""The REST call that creates a table, as clients of gchq/sleeper send it."""

import base64
import json
from http import HTTPStatus
from typing import Any

from sleeper.admin.table_requests import add_table_as_gchq, describe_refusal
from sleeper.instance import Instance
from sleeper.workers.lambda_function import Event, lambda_function


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, Any]:
    """Answers one request of API Gateway. IAM has authorized its caller."""
    try:
        request = json.loads(_body(event))
    except (ValueError, RecursionError) as error:
        status, answer = describe_refusal(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}")
    else:
        status, answer = add_table_as_gchq(instance, request)
    return {
        "statusCode": int(status),
        "headers": {"content-type": "application/json"},
        "body": json.dumps(answer),
    }


def _body(event: Event) -> bytes:
    text = event.get("body") or ""
    return base64.b64decode(text) if event.get("isBase64Encoded") else text.encode()
