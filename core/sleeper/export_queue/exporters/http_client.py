"""A client of one HTTP server, for exporters.

It keeps one connection, verifies certificates, and follows no redirects, so that a receiver cannot
direct exports to another host. Errors show the server's scheme, host and port only, because a path
or a query may contain a secret, and never the secrets that requests contain.
"""

import http.client
import re
import ssl
import time
from collections.abc import Container, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from sleeper import __version__
from sleeper.errors import InvalidRequestError, UnavailableError, describe_error
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.exporters.options import exporter_name, read_path
from sleeper.runs.transport import INSECURE, insecure_connection, must_verify, read_insecure

_CA_OPTION = "ssl.ca.location"
HTTP_OPTIONS = frozenset({INSECURE, _CA_OPTION})
_CONNECT_SECONDS_MAX = 10.0
_WAIT_SECONDS_MIN = 0.05
# The drain ends the process of a call that takes longer than the queue's timeout.
_PART_OF_TIMEOUT = 0.8
_ANSWER_BYTES_MAX = 16 * 1_048_576
_PIECE_BYTES = 65_536
_SHOWN_CHARACTERS = 200
_HOST = re.compile(r"[A-Za-z0-9._:%-]+")
_STALE = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """The parts of a URL. `path` includes the query."""

    is_tls: bool
    host: str
    port: int | None
    path: str

    @property
    def shown(self) -> str:
        """The URL without path and query."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"http{'s' if self.is_tls else ''}://{host}{port}"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer of the server. `retry_after` is the header of that name, or an empty string."""

    status: int
    reason: str
    retry_after: str
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


def parse_address(queue: ExportQueue) -> HttpAddress:
    """Returns the address of the exporter's URL. InvalidRequestError if it is invalid.

    The scheme is https. Option `insecure=true` allows http, which loopback hosts may always have.
    """
    where = exporter_name(queue)
    try:
        parts = urlsplit(queue.exporter.target)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidRequestError(f"{where}: invalid URL (expected https://HOST/PATH)") from None
    if parts.scheme not in ("http", "https") or _HOST.fullmatch(host) is None:
        raise InvalidRequestError(f"{where}: invalid URL (expected https://HOST/PATH)")
    if parts.username is not None or parts.password is not None:
        raise InvalidRequestError(
            f"{where}: the URL has a user or password, which would be stored (expected none: "
            "pass --password with env:NAME, file:PATH or secret:NAME-OR-ARN)"
        )
    if parts.fragment:
        raise InvalidRequestError(f"{where}: the URL has a fragment after '#' (expected none)")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not path.isascii() or not path.isprintable() or " " in path:
        raise InvalidRequestError(f"{where}: the URL has characters that are not percent-encoded")
    is_insecure = read_insecure(where, queue.exporter.options)
    if parts.scheme == "http" and must_verify((host,), is_insecure):
        raise insecure_connection(where, (host,), "an http URL", "an https URL")
    return HttpAddress(parts.scheme == "https", host, port, path)


class HttpClient:
    """Sends POST requests on a connection that it keeps. Not safe for threads.

    `refusals` are the statuses of answers to exports that the server does not take. `secrets` are
    texts that errors must not show.
    """

    def __init__(
        self,
        queue: ExportQueue,
        address: HttpAddress,
        refusals: Container[int],
        secrets: tuple[str, ...],
    ) -> None:
        self._address = address
        self._refusals = refusals
        self._secrets = secrets
        self._tls = _tls_context(queue) if address.is_tls else None
        self._seconds = queue.timeout_seconds * _PART_OF_TIMEOUT
        self._connection: http.client.HTTPConnection | None = None

    def deadline(self) -> float:
        """Returns the time by which a call of the exporter that begins now has to end."""
        return time.monotonic() + self._seconds

    def post(
        self, path: str, body: bytes, headers: Mapping[str, str], deadline: float
    ) -> HttpAnswer:
        """Returns the answer. UnavailableError if there is none until the deadline."""
        headers = {"User-Agent": f"sleeper/{__version__}", "Accept": "application/json", **headers}
        is_reused = self._connection is not None
        try:
            try:
                return self._attempt(path, body, headers, deadline)
            except _STALE:
                # Servers close connections that are idle.
                if not is_reused:
                    raise
                self.close()
                return self._attempt(path, body, headers, deadline)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise UnavailableError(f"{self._address.shown}: {_describe(error)}") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the connection. A later request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def check(self, answer: HttpAnswer) -> None:
        """Raises an error unless the status is 2xx, with the beginning of the answer.

        InvalidRequestError if it refuses the exports, else UnavailableError.
        """
        if answer.is_success:
            return
        wait = f" (retry after {answer.retry_after[:40]})" if answer.retry_after else ""
        text = f"{self._address.shown}: status {answer.status} {answer.reason}{wait}"
        if shown := self.shorten(answer.body.decode(errors="replace")):
            text += f": {shown}"
        if answer.status in self._refusals:
            raise InvalidRequestError(text)
        raise UnavailableError(text)

    def shorten(self, text: str) -> str:
        """Returns the beginning of a text of the server, on one line and without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        line = " ".join(text[: 4 * _SHOWN_CHARACTERS].split())
        shown = "".join(c if c.isprintable() else "?" for c in line)
        return shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}…"

    def _attempt(
        self, path: str, body: bytes, headers: Mapping[str, str], deadline: float
    ) -> HttpAnswer:
        connection = self._connection or self._connect(deadline)
        self._limit_wait(connection, deadline)
        connection.request("POST", path, body, dict(headers))
        self._limit_wait(connection, deadline)
        with connection.getresponse() as response:
            content = self._read(connection, response, deadline)
            is_last = response.will_close
            answer = HttpAnswer(
                response.status, response.reason, response.headers.get("Retry-After", ""), content
            )
        if is_last:
            self.close()
        return answer

    def _read(
        self,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
        deadline: float,
    ) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while piece := response.read1(_PIECE_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > _ANSWER_BYTES_MAX:
                raise http.client.HTTPException(
                    f"the answer has more than {_ANSWER_BYTES_MAX:,} bytes"
                )
            self._limit_wait(connection, deadline)
        return b"".join(pieces)

    def _connect(self, deadline: float) -> http.client.HTTPConnection:
        host, port = self._address.host, self._address.port
        seconds = min(_CONNECT_SECONDS_MAX, _remaining_seconds(deadline))
        if self._tls is None:
            self._connection = http.client.HTTPConnection(host, port, timeout=seconds)
        else:
            self._connection = http.client.HTTPSConnection(
                host, port, timeout=seconds, context=self._tls
            )
        self._connection.connect()
        return self._connection

    def _limit_wait(self, connection: http.client.HTTPConnection, deadline: float) -> None:
        # The response owns the socket if the server closes the connection after it.
        if connection.sock is not None:
            connection.sock.settimeout(_remaining_seconds(deadline))
        elif time.monotonic() > deadline:
            raise TimeoutError


def _remaining_seconds(deadline: float) -> float:
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return max(_WAIT_SECONDS_MIN, seconds)


def _tls_context(queue: ExportQueue) -> ssl.SSLContext:
    path = read_path(queue, _CA_OPTION)
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        raise InvalidRequestError(
            f"{exporter_name(queue)}: cannot read the certificates of file {path}: "
            f"{describe_error(error)}"
        ) from error


def _describe(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"invalid certificate: {error.verify_message}"
    return describe_error(error) if isinstance(error, OSError) else str(error)
