"""A proxy in front of a server that answers requests with status 500 while it is set to fail."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import urllib3

_NOT_FORWARDED = {"connection", "transfer-encoding", "content-length", "content-encoding"}


@dataclass(slots=True)
class FailingProxy:
    """Where the proxy is. The next `failures` requests fail, and never reach the server."""

    endpoint: str = ""
    failures: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fails_now(self) -> bool:
        with self.lock:
            fails = self.failures > 0
            self.failures -= fails
            return fails


@contextlib.contextmanager
def failing_proxy(target: str) -> Iterator[FailingProxy]:
    """A proxy of the server at that address."""
    proxy, pool = FailingProxy(), urllib3.PoolManager()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if proxy.fails_now():
                self.send_response(500)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            url = f"{target}{self.path}"
            answer = pool.request(
                self.command, url, body=body, headers=dict(self.headers), retries=False
            )
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in _NOT_FORWARDED:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.data)))
            self.end_headers()
            self.wfile.write(answer.data)

        do_GET = do_PUT = do_POST = do_DELETE = forward

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy.endpoint = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        pool.clear()
