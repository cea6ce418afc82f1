"""A proxy on loopback that counts the requests to a server of AWS, and forwards them."""

import contextlib
import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

# The end of a context waits as long.
_POLL_SECONDS = 0.02
_NOT_FORWARDED = ("connection", "transfer-encoding", "content-length")


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its response. `target` is the header `X-Amz-Target`, or empty."""

    method: str
    path: str
    target: str
    body: bytes
    response: bytes


Observer = Callable[[Exchange], None]


@dataclass(slots=True)
class CountingProxy:
    """Where the proxy is, what it has seen, and its processor time.

    It counts requests by method, and the bytes of the responses.
    """

    endpoint: str = ""
    methods: Counter[str] = field(default_factory=Counter)
    response_bytes: int = 0
    cpu_seconds: float = 0.0
    observer: Observer | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def taken(self) -> int:
        """Returns the number of requests since the last call."""
        with self.lock:
            count = self.methods.total()
            self.methods.clear()
            return count

    def record(self, exchange: Exchange) -> None:
        """Counts a request, and tells the observer."""
        with self.lock:
            self.methods[exchange.method] += 1
            self.response_bytes += len(exchange.response)
            if self.observer is not None:
                self.observer(exchange)

    def add_cpu(self, seconds: float) -> None:
        """Adds processor time of a thread of the proxy."""
        with self.lock:
            self.cpu_seconds += seconds


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

    def handle_one_request(self) -> None:
        start = time.thread_time()
        super().handle_one_request()
        self.server.proxy.add_cpu(time.thread_time() - start)

    def forward(self) -> None:
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
        response = present.getresponse()
        content = response.read()
        target = self.headers.get("X-Amz-Target", "")
        # Before the answer, so that its receiver finds the request counted.
        self.server.proxy.record(Exchange(self.command, self.path, target, body or b"", content))
        self._answer(response, content)

    def _answer(self, response: http.client.HTTPResponse, content: bytes) -> None:
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
def counting_proxy(server: str, observer: Observer | None = None) -> Iterator[CountingProxy]:
    """Runs until the context ends. The `observer` is called with each request, one at a time.

    Signatures hold: they are made for the proxy's own address, which is what the server is told.
    """
    proxy = CountingProxy(observer=observer)
    server_ = _Server(server, proxy)
    proxy.endpoint = f"http://127.0.0.1:{server_.server_port}"
    thread = threading.Thread(target=server_.serve_forever, args=(_POLL_SECONDS,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server_.shutdown()
        server_.server_close()
        thread.join()
