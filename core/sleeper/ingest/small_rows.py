"""The rows of small requests: how they are decoded together, sorted in memory and written.

A request has JSON lines, CSV or Arrow data. Parsing takes longer to start than to read a row, so
the JSON lines of requests that follow each other are parsed at once. If that fails, each half is
tried, until the invalid requests are alone.
"""

import contextlib
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import pyarrow as pa

from sleeper.datafiles.arrow import as_plain
from sleeper.datafiles.conversions import integer_array
from sleeper.datafiles.engine.settings import make_spill_folder
from sleeper.datafiles.merge.sort import sort_batches
from sleeper.datafiles.sources.arrow_stream import read_stream
from sleeper.datafiles.sources.budget import (
    RowBudget,
    RowLimits,
    TooLargeError,
    row_bytes_min,
)
from sleeper.datafiles.sources.encodings import MemoryFile
from sleeper.datafiles.sources.enrichment import RowEnrichment
from sleeper.datafiles.sources.files import RowChecker, read_batches
from sleeper.datafiles.sources.json_rows import BlockParser
from sleeper.datafiles.sources.text import read_csv, read_json_lines
from sleeper.datafiles.text_values import TEXT_IN_JSON
from sleeper.datafiles.validity import check_undamaged
from sleeper.datafiles.write.file import DataFileWriter
from sleeper.datafiles.write.route import LeafRouter
from sleeper.errors import InvalidRequestError, SleeperError
from sleeper.files import SIDECAR_SUFFIXES, new_data_path
from sleeper.ingest.gathered_rows import LastRows
from sleeper.ingest.references import choose_references, list_counted
from sleeper.ingest.run import IngestTable
from sleeper.partitions.partition import ROOT_PARTITION_ID
from sleeper.runs.commit import RunStart
from sleeper.schema.model import Schema
from sleeper.statestore.transactions.add_files import NewFile
from sleeper.storage.source_options import SourceOptions

ROWS_NAME = "(request)"
"""The name of a request's rows in errors."""
REQUEST_OPTIONS = SourceOptions(encoding="utf-8")
"""Nobody would see the warning that another encoding was guessed."""
_DIGEST_BYTES = 12


class ContentType(Enum):
    """The formats of a request's rows, by their media types."""

    JSON_LINES = "application/x-ndjson"
    CSV = "text/csv"
    ARROW_STREAM = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True, slots=True)
class Content:
    """The rows of one request, as the bytes of a format."""

    type: ContentType
    data: bytes

    def digest(self) -> bytes:
        """Returns a fingerprint of the content."""
        digest = begin_digest(self.type)
        digest.update(self.data)
        return digest.digest()


def begin_digest(kind: ContentType) -> "hashlib.blake2b":
    """Returns the hash of a content, to which its data is added."""
    return hashlib.blake2b(kind.value.encode(), digest_size=_DIGEST_BYTES)


Decoded = list[pa.RecordBatch] | Exception
"""The rows of one request in the types of the table, or what is wrong with them."""

# Of the rows of all requests that are written together.
_TOGETHER_BYTES_MAX = 32 * 1024**2


class ContentDecoder:
    """Decodes the contents of requests for one table.

    `limits` are those of each content; None if it is from this process.
    """

    def __init__(self, table: IngestTable, limits: RowLimits | None = None) -> None:
        self._table = table
        self._limits = limits
        self._row_bytes_min = row_bytes_min(table.schema)
        self._together_bytes_max = _TOGETHER_BYTES_MAX
        if limits is not None:
            self._together_bytes_max = min(_TOGETHER_BYTES_MAX, limits.memory_bytes_max)
        self._enrichment: RowEnrichment | None = table.open_enrichment()
        schema = table.source_schema
        self._lines = BlockParser(schema, ignores_extra=False)
        self._text_fields = frozenset(f.name for f in schema.fields if f.type in TEXT_IN_JSON)

    def decode(self, contents: Sequence[Content]) -> Iterator[Decoded]:
        """Yields the rows of each content, in order.

        It ends before a content whose rows would take too much memory together with the earlier
        ones. The first is always decoded.
        """
        count, used = self._count_fitting(contents)
        fitting, is_first = contents[:count], True
        try:
            self._check_text(contents[0])
        except TooLargeError as error:
            yield error
            return
        for kind, group in itertools.groupby(fitting, key=lambda content: content.type):
            if kind is ContentType.JSON_LINES:
                yield from self._decode_lines([content.data for content in group])
                is_first = False
                continue
            for rows in map(self._decode_alone, group):
                size = 0 if isinstance(rows, Exception) else sum(each.nbytes for each in rows)
                if not is_first and used + size > self._together_bytes_max:
                    return
                used, is_first = used + size, False
                yield rows

    def _count_fitting(self, contents: Sequence[Content]) -> tuple[int, int]:
        """Returns how many contents fit into memory together, as far as their texts tell.

        Also the size of their texts.
        """
        count = used = 0
        for content in contents:
            size = self._text_bytes(content)
            if count and used + size > self._together_bytes_max:
                break
            count, used = count + 1, used + size
        return count, used

    def _check_text(self, content: Content) -> None:
        if self._limits is not None:
            RowBudget(self._limits).check_memory(self._text_bytes(content), "the text of the rows")

    def _text_bytes(self, content: Content) -> int:
        """Returns the approximate size of the rows of a text, of which each line is a row."""
        if content.type is ContentType.ARROW_STREAM:
            return 0  # Only its decoded batches tell.
        lines = content.data.count(b"\n") + 1
        return lines * self._row_bytes_min + len(content.data)

    def _decode_lines(self, bodies: Sequence[bytes]) -> Iterator[Decoded]:
        ended = [body if body.endswith(b"\n") else body + b"\n" for body in bodies]
        rows = self._parse(b"".join(ended))
        if rows is None and len(bodies) == 1:
            yield self._decode_alone(Content(ContentType.JSON_LINES, bodies[0]))
            return
        if rows is None:
            middle = len(bodies) // 2
            yield from self._decode_lines(bodies[:middle])
            yield from self._decode_lines(bodies[middle:])
            return
        start = 0
        for body in ended:
            count = body.count(b"\n")
            yield [rows.slice(start, count)]
            start += count

    def _parse(self, block: bytes) -> pa.RecordBatch | None:
        """Returns the rows of the lines, one each; None if some may be invalid."""
        columns = self._lines.parse(block)
        if columns is None:
            return None
        try:
            return self._checker().parse(columns, self._text_fields)
        except InvalidRequestError:
            return None

    def _decode_alone(self, content: Content) -> Decoded:
        file = MemoryFile(ROWS_NAME, content.data)
        try:
            match content.type:
                case ContentType.JSON_LINES:
                    return list(read_json_lines(file, self._checker()))
                case ContentType.CSV:
                    return list(read_csv(file, self._checker()))
                case ContentType.ARROW_STREAM:
                    checker = self._checker()
                    batches = read_stream(
                        content.data, ROWS_NAME, self._row_bytes_min, checker.budget
                    )
                    return list(read_batches(batches, checker))
        except Exception as error:  # also unexpected ones, which must not fail other requests
            return error

    def _checker(self) -> RowChecker:
        budget = None
        if self._limits is not None:
            in_memory = self._limits.memory_bytes_max
            budget = RowBudget(replace(self._limits, bytes_max=in_memory))
        return RowChecker(
            self._table.schema,
            ROWS_NAME,
            None,
            line_bytes_max=self._table.engine.line_bytes_max,
            json_limits=self._table.engine.json_limits,
            enrichment=self._enrichment,
            options=REQUEST_OPTIONS,
            budget=budget,
        )


def encode_stream(batches: Sequence[pa.RecordBatch]) -> Content:
    """Returns batches of one schema as content, whose fingerprint ignores how rows are divided.

    InvalidRequestError if one is damaged.
    """
    for batch in batches:
        check_undamaged(batch)
    if any(not batch.schema.equals(batches[0].schema) for batch in batches):
        raise InvalidRequestError("rows have different schemas (expected one)")
    table = pa.Table.from_batches(batches).replace_schema_metadata(None)
    table = pa.table([as_plain(column) for column in table.columns], table.schema.names)
    # Buffers of slices have bits of other rows, and those of nulls any values. A copy has not.
    with contextlib.suppress(pa.ArrowNotImplementedError):  # of lists of views
        table = table.take(integer_array(np.arange(table.num_rows)))
    table = table.combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Content(ContentType.ARROW_STREAM, sink.getvalue().to_pybytes())


def write_small(
    table: IngestTable, batches: Sequence[pa.RecordBatch], start: RunStart
) -> tuple[NewFile, ...]:
    """Sorts decoded rows and writes them durably, to one file with a reference per leaf.

    A file per leaf would be as many tiny files as there are leaves. Nothing has committed it yet.
    All of it happens in this thread, because threads take longer to start than to write a file.
    """
    rows, size = sum(each.num_rows for each in batches), sum(each.nbytes for each in batches)
    # A partition that was split since then still takes its references.
    with table.state.reading(stale=True) as state:
        leaves = list_counted(state, table.descent, rows, size)
    in_order, written = _sort(table, batches)
    only = leaves[0].id if len(leaves) == 1 else ROOT_PARTITION_ID
    path = new_data_path(table.table_id, only, start.ms)
    router, rows_of_leaf = LeafRouter(table.schema, leaves), Counter[int]()
    make_spill_folder(table.engine.spill_folder)
    writer = DataFileWriter(table.root, path, written, table.files, table.engine.spill_folder)
    try:
        for batch in in_order:
            for index, rows in router.route(batch):
                rows_of_leaf[index] += rows.num_rows
            writer.write([batch])
        file = writer.finish()
    except BaseException:  # an interrupt too
        writer.abandon()
        with contextlib.suppress(SleeperError):
            table.root.delete([path + suffix for suffix in ("", *SIDECAR_SUFFIXES)])
        raise
    references = tuple((leaves[index].id, rows) for index, rows in rows_of_leaf.items())
    with table.state.reading(stale=True) as state:
        return choose_references(state, table.descent, [NewFile(file, references)])


def _sort(
    table: IngestTable, batches: Sequence[pa.RecordBatch]
) -> tuple[Iterable[pa.RecordBatch], Schema]:
    """Returns the rows in order, and the fields to write."""
    schema = table.schema
    if schema.latest is not None:
        last = LastRows(schema)
        staged = list(last.stage(batches))
        engine = replace(table.engine, threads=1)
        in_order = last.keep(sort_batches(iter(staged), last.staged, engine, last.order))
        return in_order, last.written
    rows = pa.Table.from_batches(batches)
    # A plan of the engine takes several milliseconds.
    ordered = rows.sort_by([(field.name, "ascending") for field in schema.keys])
    return ordered.combine_chunks().to_batches(), schema
