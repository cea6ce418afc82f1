"""Open WebSocket connections of API Gateway."""

from collections.abc import Callable
from urllib.parse import urlsplit

from sleeper.aws.clients import aws_client
from sleeper.aws.errors import translate_errors
from sleeper.errors import InvalidRequestError
from sleeper.jobs.connection import Connection

_SERVICE = "apigatewaymanagementapi"


class GatewayConnections:
    """Sends to connections of the instance's own API, the one at `api_url`."""

    def __init__(self, api_url: Callable[[], str | None]) -> None:
        self._api_url = api_url

    def send(self, connection: Connection, frame: str) -> None:
        """Sends a text frame. NotFoundError if the connection is closed.

        InvalidRequestError for another endpoint: a message may name any, but frames go only to
        the API that was deployed.
        """
        own = self._api_url()
        if own is None or _host(connection.endpoint) != _host(own):
            raise InvalidRequestError(
                f"there is no WebSocket of the instance at {connection.endpoint}"
            )
        client = aws_client(_SERVICE, "https" + own[own.index(":") :])
        with translate_errors(f"connection {connection.id}"):
            client.post_to_connection(ConnectionId=connection.id, Data=frame.encode())


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
