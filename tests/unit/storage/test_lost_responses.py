"""Puts that S3 executed but answered with an error, or refused because of another in flight."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sleeper.errors import UnavailableError
from sleeper.storage.bucket import Bucket, Credentials
from sleeper.storage.location import DataRoot


class Handler(BaseHTTPRequestHandler):
    """Objects that can be created once and read.

    The first put is answered with status 500, or is refused with another one.
    """

    objects: dict[str, bytes]
    puts: list[str]
    first: int

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.puts.append(self.path)
        if len(self.puts) == 1 and self.first != 500:
            self._answer(self.first)
            return
        if self.path in self.objects and self.headers["If-None-Match"] == "*":
            self._answer(412)
            return
        self.objects[self.path] = content
        self._answer(500 if len(self.puts) == 1 else 200)

    def do_GET(self) -> None:
        result = self.objects.get(self.path)
        self._answer(404 if result is None else 200, result or b"")

    def _answer(self, status: int, content: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Suppresses the request log."""


@contextmanager
def server(objects: dict[str, bytes], first: int = 500) -> Iterator[tuple[DataRoot, list[str]]]:
    puts: list[str] = []
    members = {"objects": objects, "puts": puts, "first": first}
    handler = type("_Handler", (Handler,), members)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        endpoint = f"http://127.0.0.1:{running.server_port}"
        keys = Credentials("key", "secret")
        try:
            yield DataRoot(Bucket("b", "", "us-east-1", endpoint, keys)), puts
        finally:
            running.shutdown()
            thread.join()


def test_put_of_an_object_with_a_lost_response_succeeds() -> None:
    objects: dict[str, bytes] = {}
    with server(objects) as (root, puts):
        with root.sink("t/data/f.parquet") as sink:
            sink.write(b"content")
        assert len(puts) == 2
        assert list(objects.values()) == [b"content"]


def test_upload_of_a_file_with_a_lost_response_succeeds(tmp_path: Path) -> None:
    objects: dict[str, bytes] = {}
    with server(objects) as (root, puts):
        with root.local_target("t/data/f.parquet", tmp_path) as file:
            file.write_bytes(b"content")
        assert len(puts) == 2
        assert list(objects.values()) == [b"content"]


def test_a_put_that_conflicts_with_one_in_flight_is_repeated() -> None:
    for exists in (False, True):
        objects = {"/b/marker": b"another"} if exists else {}
        with server(objects, first=409) as (root, puts):
            assert root.create("marker", b"content") != exists
            assert len(puts) == 2 - exists
        assert objects == {"/b/marker": b"another" if exists else b"content"}
    with server(objects, first=409) as (root, _):
        with root.sink("f.parquet") as sink:
            sink.write(b"content")
        assert objects["/b/f.parquet"] == b"content"


@pytest.mark.parametrize("content", [b"another", b"contenT"])
def test_object_of_another_writer_is_an_error(content: bytes) -> None:
    objects = {"/b/t/data/f.parquet": content}
    with server(objects) as (root, _):
        with (
            pytest.raises(UnavailableError, match="the object already exists"),
            root.sink("t/data/f.parquet") as sink,
        ):
            sink.write(b"content")
        assert list(objects.values()) == [content]
