"""A WebSocket of API Gateway: queries that come over it are sent to the query queue.

Their workers send the frames. IAM has let the caller in when he connected.
"""

from sleeper.instance import Instance
from sleeper.query_service.submit import submit_live_query
from sleeper.workers.lambda_function import Event, lambda_function

_DONE = {"statusCode": 200}


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, int]:
    """Takes `$connect`, `$disconnect` and every message."""
    context = event["requestContext"]
    if context["eventType"] == "MESSAGE":
        endpoint = f"https://{context['domainName']}/{context['stage']}"
        body = event.get("body") or ""
        submit_live_query(instance, endpoint, context["connectionId"], body)
    return _DONE
