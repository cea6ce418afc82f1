"""A small S3 server in memory, whose answers a test replaces by faults."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

DROP = (0, "")
"""A fault that ends the connection in the middle of the answer, or of the request."""


@dataclass
class FaultyS3:
    """Objects by bucket and key. `find_fault` gets method and path: a status and a code of S3.

    `access_keys` are the ids of the access keys of all requests.
    """

    endpoint: str = ""
    access_keys: list[str] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    find_fault: Callable[[str, str], tuple[int, str] | None] = lambda _method, _path: None


class _Handler(BaseHTTPRequestHandler):
    state: FaultyS3
    is_cut: bool
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def answer(self) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path).strip("/")
        length = int(self.headers.get("Content-Length") or 0)
        signature = self.headers.get("Authorization", "")
        self.state.access_keys.append(signature.partition("Credential=")[2].partition("/")[0])
        fault = self.state.find_fault(self.command, path)
        self.is_cut = fault == DROP
        if self.is_cut and self.command == "PUT":
            self.rfile.read(length // 2)
            self.close_connection = True
            return
        content = self.rfile.read(length)
        if fault is not None and not self.is_cut:
            status, code = fault
            error = f"<Error><Code>{code}</Code><Message>a fault</Message></Error>"
            self.reply(status, error.encode())
        elif self.command == "PUT":
            self.state.objects[path] = content
            self.reply(200, b"")
        elif "list-type" in url.query:
            self.reply(200, self.list_objects(path, parse_qs(url.query)))
        elif path in self.state.objects:
            self.reply_with_object(self.state.objects[path])
        else:
            self.is_cut = False
            self.reply(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def list_objects(self, bucket: str, query: dict[str, list[str]]) -> bytes:
        prefix, found = query.get("prefix", [""])[0], ""
        folders = set()
        for path, content in sorted(self.state.objects.items()):
            key = path.removeprefix(f"{bucket}/")
            rest = key.removeprefix(prefix)
            if not key.startswith(prefix):
                continue
            if "delimiter" in query and "/" in rest:
                folders.add(prefix + rest.partition("/")[0] + "/")
                continue
            found += (
                f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size>"
                "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            )
        for folder in sorted(folders):
            found += f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>"
        return f"<ListBucketResult>{found}</ListBucketResult>".encode()

    def reply_with_object(self, content: bytes) -> None:
        asked = self.headers.get("Range")
        if asked is None:
            self.reply(200, content)
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start = int(first)
        part = content[start : int(last or len(content)) + 1]
        self.reply(206, part, f"bytes {start}-{start + len(part) - 1}/{len(content)}")

    def reply(self, status: int, content: bytes, content_range: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if self.is_cut else content)
        self.close_connection = self.is_cut

    do_GET = do_PUT = do_HEAD = answer


@contextlib.contextmanager
def faulty_s3() -> Iterator[FaultyS3]:
    """Runs a server."""
    state = FaultyS3()
    handler = type("_StateHandler", (_Handler,), {"state": state})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        state.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
