"""The memory of a server stays within its limits, however few bytes of a request stand for rows."""

import io
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pytest

import sleeper
from sleeper.properties.instance import (
    SERVE_ROWS_DECODED_BYTES_MAX,
    SERVE_ROWS_MEMORY_BYTES_MAX,
    SORT_MEMORY_BYTES,
)
from tests.system.export_runs import COMMAND

pytestmark = pytest.mark.slow

_MIB = 1024**2
ROWS_MIB = 32
SORT_MIB = 64
# More than a server may use, if it had the rows in memory, and little enough to be decoded soon.
DECODED_MIB = 128
# Writing rows takes up to four times their memory, as docs/properties.md says.
DOCUMENTED_MIB = 4 * ROWS_MIB + SORT_MIB
PEAK_MIB_MAX = DOCUMENTED_MIB + 200
ARROW = "application/vnd.apache.arrow.stream"
SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [
        {"name": "v", "type": "StringType", "nullable": True},
        {"name": "w", "type": "LongType", "nullable": True},
        {"name": "l", "type": {"ListType": {"elementType": "LongType"}}, "nullable": True},
    ],
}
WIDE = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [{"name": f"v{i}", "type": "LongType", "nullable": True} for i in range(500)],
}


@dataclass(frozen=True, slots=True)
class Bomb:
    """A body of few bytes, and the statuses that may answer it."""

    name: str
    make: Callable[[], bytes]
    kind: str = ARROW
    table: str = "t"
    statuses: tuple[int, ...] = (400, 413)


def stream(*batches: pa.RecordBatch, codec: str | None = None) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=codec, emit_dictionary_deltas=True)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def with_padding(body: bytes, kind: str = ARROW) -> bytes:
    """Returns a body with the same rows that is too large to stay in memory."""
    if kind != ARROW:
        return body + b"\n" * _MIB
    schema = pa.ipc.open_stream(body).schema.with_metadata({"padding": "x" * _MIB})
    schema_bytes = 8 + int.from_bytes(body[4:8], "little")
    return schema.serialize().to_pybytes() + body[schema_bytes:]


def keys(rows: int) -> pa.Array:
    return pa.array(np.zeros(rows, np.int64))


def nulls(rows: int, batches: int = 1) -> bytes:
    batch = pa.record_batch({"k": pa.nulls(rows), "v": pa.nulls(rows)})
    return stream(*[batch] * batches)


def compressed_zeros(rows: int) -> bytes:
    return stream(pa.record_batch({"k": keys(rows), "w": keys(rows)}), codec="zstd")


def empty_texts(rows: int) -> bytes:
    texts = pa.array(np.full(rows, ""), pa.string())
    return stream(pa.record_batch({"k": keys(rows), "v": texts}), codec="zstd")


def dictionary(rows: int, value_bytes: int) -> bytes:
    indices = pa.array(np.zeros(rows, np.int8))
    texts = pa.DictionaryArray.from_arrays(indices, ["x" * value_bytes])
    return stream(pa.record_batch({"k": keys(rows), "v": texts}), codec="zstd")


def views(rows: int, value_bytes: int) -> bytes:
    word = np.frombuffer(value_bytes.to_bytes(4, "little") + b"xxxx", np.uint64)
    view = np.repeat(np.array([[word[0], 0]], np.uint64), rows, axis=0)
    buffers = [None, pa.py_buffer(view), pa.py_buffer(b"x" * value_bytes)]
    texts = pa.Array.from_buffers(pa.string_view(), rows, buffers)
    return stream(pa.record_batch({"k": keys(rows), "v": texts}), codec="zstd")


def null_elements(elements: int) -> bytes:
    lists = pa.ListArray.from_arrays(pa.array([0, elements], pa.int32()), pa.nulls(elements))
    return stream(pa.record_batch({"k": keys(1), "l": lists}))


def shared_buffer(columns: int, rows: int) -> bytes:
    return stream(
        pa.record_batch({f"v{i}": keys(rows) for i in range(columns)} | {"k": keys(rows)}),
        codec="lz4",
    )


BOMBS = [
    Bomb("nulls", lambda: nulls(20_000_000)),
    Bomb("nulls of many batches", lambda: nulls(1_000_000, 400)),
    Bomb("zeros", lambda: compressed_zeros(40_000_000)),
    Bomb("empty texts", lambda: empty_texts(20_000_000)),
    Bomb("a dictionary", lambda: dictionary(5_000, 200_000)),
    Bomb("views", lambda: views(5_000, 200_000)),
    Bomb("elements", lambda: null_elements(200_000_000)),
    Bomb("many columns", lambda: shared_buffer(500, 100_000), table="wide"),
    Bomb("sparse lines", lambda: b'{"k":1}\n' * 130_000, "application/x-ndjson", "wide"),
    Bomb("sparse text", lambda: b"k\n" + b"1\n" * 500_000, "text/csv", "wide"),
    Bomb("deep", lambda: b'{"k":' + b"[" * 900_000, "application/x-ndjson"),
]


@dataclass(frozen=True, slots=True)
class Server:
    """A server in a process of its own."""

    url: str
    token: str
    pid: int
    idle_mib: int = 0

    def post(self, bomb: Bomb, body: bytes) -> httpx.Response:
        headers = {"Content-Type": bomb.kind, "Authorization": f"Bearer {self.token}"}
        path = f"{self.url}/tables/{bomb.table}/rows"
        return httpx.post(path, content=body, headers=headers, timeout=120)

    def peak_mib(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+)", status)
        assert found
        return int(found[1]) // 1024

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("bombs") / "instance"
    properties = {
        SERVE_ROWS_MEMORY_BYTES_MAX.name: str(ROWS_MIB * _MIB),
        SERVE_ROWS_DECODED_BYTES_MAX.name: str(DECODED_MIB * _MIB),
        SORT_MEMORY_BYTES.name: str(SORT_MIB * _MIB),
    }
    with sleeper.create_instance(folder, properties) as instance:
        instance.create_table("t", json.dumps(SCHEMA))
        instance.create_table("wide", json.dumps(WIDE))
    token = "a-token-of-some-length"
    command = [*COMMAND, "--instance", str(folder), "serve", "--port", "0"]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SLEEPER_SERVE_TOKEN": token, "SLEEPER_INSTANCE": str(folder)},
    ) as process:
        assert process.stderr
        line = process.stderr.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + process.stderr.read()
        started = Server(found[0].rstrip("/"), token, process.pid)
        yield replace(started, idle_mib=started.peak_mib())
        process.send_signal(signal.SIGINT)
        process.wait(30)


@pytest.mark.parametrize("in_file", [False, True], ids=["in memory", "in a file"])
@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.name)
def test_a_bomb_is_refused_within_the_memory(server: Server, bomb: Bomb, in_file: bool) -> None:
    body = with_padding(bomb.make(), bomb.kind) if in_file else bomb.make()
    print(f"{bomb.name}: {len(body):,} bytes")
    server.forget_peak()
    before = server.peak_mib()
    answer = server.post(bomb, body)
    print(answer.status_code, answer.text[:300], before, server.peak_mib())
    assert server.peak_mib() - server.idle_mib <= PEAK_MIB_MAX
    assert answer.status_code in bomb.statuses, answer.text


@pytest.mark.parametrize(
    ("rows", "batches", "in_file"),
    [(600_000, 1, False), (1_000_000, 2, True)],
    ids=["in memory", "in a file"],
)
def test_rows_up_to_the_limits_are_written_within_the_memory(
    server: Server, rows: int, batches: int, in_file: bool
) -> None:
    batch = pa.record_batch({"k": keys(rows), "w": keys(rows)})
    body = stream(*[batch] * batches, codec="zstd")
    if in_file:
        body = with_padding(body)
    server.forget_peak()
    # The allocator keeps some memory of the requests before.
    before = server.peak_mib()
    answer = server.post(Bomb("zeros", bytes), body)
    print(answer.text, before, server.peak_mib())
    assert answer.json()["rows"] == rows * batches
    assert server.peak_mib() - before <= PEAK_MIB_MAX
