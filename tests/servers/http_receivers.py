"""Receivers of exports over HTTP: a webhook, and the bulk requests of OpenSearch."""

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

LARGE_CHARACTERS = 1_048_576
"""The receivers refuse exports with longer texts."""


@dataclass(frozen=True, slots=True)
class Request:
    """A received request."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)


_ACTION_MEMBERS = {"_id", "version", "version_type"}

Respond = Callable[[Request], Answer]


@dataclass(slots=True)
class HttpServer:
    """A running server on a loopback port."""

    port: int
    is_tls: bool = False
    connections: int = 0

    @property
    def url(self) -> str:
        return f"http{'s' if self.is_tls else ''}://127.0.0.1:{self.port}"


@contextlib.contextmanager
def http_server(
    respond: Respond, port: int = 0, certificate: Path | None = None
) -> Iterator[HttpServer]:
    """Runs a server that answers POST requests. It ends its connections with it.

    `certificate` is a file with its certificate and key, and makes it a server of HTTPS.
    """
    sockets: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            sockets.append(self.connection)
            started.connections += 1

        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = respond(Request(self.path, dict(self.headers), body))
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            pass

    server = Server(("127.0.0.1", port), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    started = HttpServer(server.server_port, is_tls=certificate is not None)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield started
    finally:
        server.shutdown()
        server.server_close()
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(2)


@dataclass(slots=True)
class Webhook:
    """Keeps exports, and refuses those with a large text."""

    exports: list[dict[str, Any]] = field(default_factory=list)

    def respond(self, request: Request) -> Answer:
        """Answers as the page on receivers says."""
        refused = []
        for position, each in enumerate(json.loads(request.body)["exports"]):
            if _is_large(each["value"]):
                refused.append({"position": position, "reason": "the text is too long"})
            else:
                self.exports.append(each)
        return Answer(422 if refused else 200, json.dumps({"refused": refused}).encode())


@dataclass(slots=True)
class OpenSearch:
    """An index with the rules of external versions of OpenSearch.

    See https://docs.opensearch.org/api-reference/document-apis/bulk/ and `VersionType.EXTERNAL` in
    OpenSearch's source: an operation is a conflict unless its version is larger than the
    stored one. The version of a deleted document is kept for `gc_deletes_seconds`. `operations`
    are those that took effect.
    """

    index: str
    gc_deletes_seconds: float = 60.0
    documents: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    deleted: dict[str, tuple[int, float]] = field(default_factory=dict)
    operations: list[tuple[str, int, dict[str, Any] | None]] = field(default_factory=list)
    busy_ids: set[str] = field(default_factory=set)
    clock: Callable[[], float] = time.monotonic

    def respond(self, request: Request) -> Answer:
        """Answers a bulk request."""
        parts = urlsplit(request.path)
        if parts.path != f"/{self.index}/_bulk":
            return _problem(404, "index_not_found_exception", f"no such index {parts.path}")
        if request.headers.get("Content-Type") != "application/x-ndjson":
            return _problem(406, "media_type_header_exception", "invalid content type")
        if not request.body.endswith(b"\n"):
            return _problem(400, "illegal_argument_exception", "must be terminated by a newline")
        lines = [json.loads(line) for line in request.body.decode().split("\n")[:-1]]
        actions: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = []
        while lines:
            ((name, members),) = lines.pop(0).items()
            if name not in ("index", "delete") or set(members) != _ACTION_MEMBERS:
                return _problem(400, "illegal_argument_exception", f"unknown action {name}")
            if not 1 <= len(members["_id"].encode()) <= 512 or members["version"] < 0:
                return _problem(400, "action_request_validation_exception", "invalid id or version")
            actions.append((name, members, lines.pop(0) if name == "index" else None))
        items = [{name: self._apply(name, members, body)} for name, members, body in actions]
        assert parse_qs(parts.query)["filter_path"]  # members that it leaves out are not made here
        return Answer(200, json.dumps({"items": items}).encode())

    def _apply(
        self, name: str, members: dict[str, Any], document: dict[str, Any] | None
    ) -> dict[str, Any]:
        key, version = members["_id"], members["version"]
        assert members["version_type"] == "external"
        if key in self.busy_ids:
            reason = "rejected execution"
            return _item(429, "rejected_execution_exception", reason)
        if _is_large(document):
            return _item(400, "mapper_parsing_exception", "failed to parse field [v]")
        current = self._version(key)
        if current is not None and version <= current:
            reason = f"[{key}]: version conflict, current version [{current}] is higher"
            return _item(409, "version_conflict_engine_exception", reason)
        self.operations.append((key, version, document))
        was_there = self.documents.pop(key, None) is not None
        if document is None:
            self.deleted[key] = (version, self.clock())
            return {"status": 200 if was_there else 404}
        self.deleted.pop(key, None)
        self.documents[key] = (version, document)
        return {"status": 200 if was_there else 201}

    def _version(self, key: str) -> int | None:
        if key in self.documents:
            return self.documents[key][0]
        version, time_deleted = self.deleted.get(key, (None, 0.0))
        return version if self.clock() - time_deleted <= self.gc_deletes_seconds else None


def _item(status: int, kind: str, reason: str) -> dict[str, Any]:
    return {"status": status, "error": {"type": kind, "reason": reason}}


def _problem(status: int, kind: str, reason: str) -> Answer:
    return Answer(status, json.dumps({"error": {"type": kind, "reason": reason}}).encode())


def _is_large(value: Mapping[str, Any] | None) -> bool:
    texts = (each for each in (value or {}).values() if isinstance(each, str))
    return any(len(text) > LARGE_CHARACTERS for text in texts)
