"""Loses the responses of AWS, so that boto3 repeats requests which the service has carried out."""

import io
from collections.abc import Iterator
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.httpsession import URLLib3Session


def lose_next_response(client: Any, operation: str) -> None:
    """Sends the next request of the operation, such as `UpdateItem`, and answers it with a 500."""
    service = client.meta.service_model.service_id.hyphenize()
    event = f"before-send.{service}.{operation}"

    def send(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        client.meta.events.unregister(event, send)
        assert URLLib3Session().send(request).status_code == 200
        return AWSResponse(request.url, 500, {}, _Body(b"{}"))

    client.meta.events.register(event, send)


class _Body(io.BytesIO):
    """The body of a response, as urllib3 has it."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()
