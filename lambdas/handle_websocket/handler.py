"""A WebSocket of API Gateway: forwards queries to the query queue.

The functions that run a query send its frames. IAM authorizes a caller when it connects.
"""

from sleeper.instance import Instance
from sleeper.query_service.service import submit_live_query
from sleeper.workers.lambda_function import Event, lambda_function

_DONE = {"statusCode": 200}


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, int]:
    """Handles `$connect`, `$disconnect` and every message."""
    context = event["requestContext"]
    if context["eventType"] == "MESSAGE":
        endpoint = f"https://{context['domainName']}/{context['stage']}"
        body = event.get("body") or ""
        submit_live_query(instance, endpoint, context["connectionId"], body)
    return _DONE
