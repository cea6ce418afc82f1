"""A proxy on loopback that counts an S3 server's requests, forwarding them as they are."""

import contextlib
import http.client
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_NOT_FORWARDED = ("connection", "transfer-encoding", "content-length")


@dataclass(slots=True)
class CountingProxy:
    """Where the proxy is, and how many requests of each method it has seen."""

    endpoint: str = ""
    methods: Counter[str] = field(default_factory=Counter)

    def taken(self) -> int:
        """Returns the number of requests since the last call."""
        count = self.methods.total()
        self.methods.clear()
        return count


class _Server(ThreadingHTTPServer):
    """Listens on a free port for requests to another server."""

    daemon_threads = True

    def __init__(self, target: str, proxy: CountingProxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target, self.proxy = urlsplit(target).netloc, proxy


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Otherwise a response waits for the acknowledgement of its own head.
    disable_nagle_algorithm = True
    server: _Server
    forwarding: http.client.HTTPConnection | None = None

    def log_message(self, *_: object) -> None:
        pass

    def forward(self) -> None:
        self.server.proxy.methods[self.command] += 1
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        present = self.forwarding = self.forwarding or http.client.HTTPConnection(
            self.server.target
        )
        present.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() != "connection":
                present.putheader(name, value)
        present.endheaders(body)
        self._answer(present.getresponse())

    def _answer(self, response: http.client.HTTPResponse) -> None:
        content = response.read()
        self.send_response_only(response.status)
        for name, value in response.getheaders():
            if name.lower() not in _NOT_FORWARDED:
                self.send_header(name, value)
        is_head = self.command == "HEAD"
        length = response.getheader("Content-Length", "0") if is_head else str(len(content))
        self.send_header("Content-Length", length)
        self.end_headers()
        if not is_head:
            self.wfile.write(content)

    def finish(self) -> None:
        super().finish()
        if self.forwarding is not None:
            self.forwarding.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward  # noqa: N815


@contextlib.contextmanager
def counting_proxy(server: str) -> Iterator[CountingProxy]:
    """Runs until the context ends. Signatures hold: they are made for the proxy's own address,
    which is what the server is told."""
    proxy = CountingProxy()
    server_ = _Server(server, proxy)
    proxy.endpoint = f"http://127.0.0.1:{server_.server_port}"
    thread = threading.Thread(target=server_.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server_.shutdown()
        server_.server_close()
        thread.join()
