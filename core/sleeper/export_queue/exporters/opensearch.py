"""Writes exports into an index of OpenSearch: `opensearch:https://HOST[:PORT]/INDEX`.

The id of a document is the text of its key, or `sha256:` and a hash if the text is empty or longer
than 512 bytes. Its members are keys, values and `sequence`. Its version is its sequence number with
the version type `external`, so the server ignores an export that is older than its document. It
remembers the version of a deleted document for the time of the index's setting `index.gc_deletes`,
one minute by default. With the option `gone=mark`, a key that is gone leaves a document
{"__gone": true, "sequence": ...} instead, which keeps its version.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.json_text import json_values
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.export_queue.definition import SEQUENCE, TOMBSTONE, ExportQueue
from sleeper.export_queue.exporter import ExportBatch, RefusedExportsError
from sleeper.export_queue.exporters.http_client import (
    HTTP_OPTIONS,
    HttpAnswer,
    HttpClient,
    parse_address,
)
from sleeper.export_queue.exporters.json_values import document_texts, key_texts
from sleeper.export_queue.exporters.options import check_options, check_text, exporter_name
from sleeper.instance import Instance
from sleeper.runs.secrets import read_secret

_OPTIONS = HTTP_OPTIONS | {"user", "gone"}
_INDEX = r"/[a-z0-9][a-z0-9._-]{0,199}"
_ID_BYTES_MAX = 512
# Below the limit of 10 MiB that small servers of Amazon OpenSearch Service have.
_REQUEST_BYTES = 8 * 1_048_576
_ANSWER_MEMBERS = "?filter_path=items.*.status,items.*.error.type,items.*.error.reason"
# The statuses of requests and documents that the server does not take. After others, such as that
# of an index that is missing or read-only, the exports wait.
_REFUSALS = frozenset({400, 413})
_NOT_FOUND = 404
_NEWER = 409


def check(_instance: Instance, queue: ExportQueue) -> None:
    """Raises InvalidRequestError if the settings are invalid. Connects to nothing."""
    check_options(queue, _OPTIONS)
    address = parse_address(queue)
    check_text(queue, "index", address.path, _INDEX, "a URL that ends in /INDEX in lower case")
    if queue.exporter.options.get("gone", "delete") not in ("delete", "mark"):
        raise InvalidRequestError(
            f"{exporter_name(queue)}: option gone is {queue.exporter.options['gone']!r} "
            "(expected delete or mark)"
        )
    if ("user" in queue.exporter.options) != (queue.exporter.password is not None):
        raise InvalidRequestError(
            f"{exporter_name(queue)}: only one of option user and a password is given "
            "(expected both or neither)"
        )


def make(instance: Instance, queue: ExportQueue) -> "OpenSearchExporter":
    """Returns the exporter."""
    check(instance, queue)
    password = queue.exporter.password
    return OpenSearchExporter(queue, None if password is None else read_secret(instance, password))


class OpenSearchExporter:
    """Sends bulk requests of at most 8 MiB, or one document."""

    def __init__(self, queue: ExportQueue, password: str | None) -> None:
        address = parse_address(queue)
        self._where = f"{address.shown}{address.path}"
        self._path = f"{address.path}/_bulk{_ANSWER_MEMBERS}"
        self._headers = {"Content-Type": "application/x-ndjson"}
        self._marks_deleted = queue.exporter.options.get("gone") == "mark"
        secrets: tuple[str, ...] = ()
        if password is not None:
            pair = f"{queue.exporter.options['user']}:{password}"
            encoded = base64.b64encode(pair.encode()).decode()
            self._headers["Authorization"] = f"Basic {encoded}"
            secrets = (password, encoded)
        self._client = HttpClient(queue, address, _REFUSALS, secrets)

    def export(self, batch: ExportBatch) -> None:
        """See the protocol."""
        lines = self._lines(batch)
        refused: dict[int, str] = {}
        deadline = self._client.deadline()
        for positions in _requests(lines):
            body = "".join(lines[positions.start : positions.stop]).encode()
            answer = self._client.post(self._path, body, self._headers, deadline)
            self._client.check(answer)
            refused.update(self._refusals(answer, positions))
        if refused:
            raise RefusedExportsError(refused)

    def close(self) -> None:
        """See the protocol."""
        self._client.close()

    def _lines(self, batch: ExportBatch) -> list[str]:
        """Returns the lines of each export: an action, and the document that it writes."""
        tombstones = batch.rows.column(TOMBSTONE)
        sequence = batch.rows.column(SEQUENCE).cast(pa.string())
        documents = document_texts(batch)
        if self._marks_deleted:
            marks = pc.binary_join_element_wise(
                f'{{"{TOMBSTONE}":true,"sequence":', sequence, "}", ""
            )
            documents = pc.if_else(tombstones, marks, documents)
            action: Any = '{"index":{"_id":'
        else:
            action = pc.if_else(tombstones, '{"delete":{"_id":', '{"index":{"_id":')
            documents = pc.if_else(tombstones, "", documents)
        ending = pc.if_else(pc.equal(documents, ""), "", "\n")
        version = (',"version":', sequence, ',"version_type":"external"}}\n')
        parts = (action, json_values(_ids(batch)), *version, documents, ending)
        lines: list[str] = pc.binary_join_element_wise(*parts, "").to_pylist()
        return lines

    def _refusals(self, answer: HttpAnswer, positions: range) -> dict[int, str]:
        """Returns reasons of the refused documents. UnavailableError if others wait."""
        try:
            raw = json.loads(answer.body)
            items = [next(iter(each.values())) for each in raw["items"]]
            statuses = [int(each["status"]) for each in items]
        except (ValueError, TypeError, KeyError, AttributeError, StopIteration) as error:
            raise UnavailableError(
                f"{self._where}: the answer is not that of a bulk request"
            ) from error
        if len(items) != len(positions):
            raise UnavailableError(
                f"{self._where}: the answer has {len(items):,} items (expected {len(positions):,})"
            )
        reasons: dict[int, str] = {}
        for position, status, item in zip(positions, statuses, items, strict=True):
            is_missing = status == _NOT_FOUND and "error" not in item
            if 200 <= status < 300 or status == _NEWER or is_missing:
                continue
            reason = self._client.shorten(f"status {status}: {_reason(item)}")
            if status not in _REFUSALS:
                raise UnavailableError(f"{self._where}: {reason}")
            reasons[position] = reason
        return reasons


def _reason(item: dict[str, Any]) -> str:
    error = item.get("error")
    if not isinstance(error, dict):
        return str(error or "no reason given")
    return f"{error.get('type')}: {error.get('reason')}"


def _ids(batch: ExportBatch) -> pa.Array:
    texts = key_texts(batch)
    sizes = pc.binary_length(texts.cast(pa.binary()))
    is_id = pc.and_(pc.greater(sizes, 0), pc.less_equal(sizes, _ID_BYTES_MAX))
    if pc.all(is_id).as_py():
        return texts
    hashes = [f"sha256:{sha256(text.encode()).hexdigest()}" for text in texts.to_pylist()]
    return pc.if_else(is_id, texts, pa.array(hashes))


def _requests(lines: Sequence[str]) -> Iterator[range]:
    """Yields the positions of the exports of each request."""
    start = size = 0
    for position, line in enumerate(lines):
        line_bytes = len(line.encode())
        if position > start and size + line_bytes > _REQUEST_BYTES:
            yield range(start, position)
            start, size = position, 0
        size += line_bytes
    yield range(start, len(lines))
