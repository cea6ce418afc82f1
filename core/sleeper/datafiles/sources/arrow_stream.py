"""Reads Arrow streams from outside. The sizes of each message are checked before it is decoded."""

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from sleeper.datafiles.expanded_sizes import CELL_BYTES
from sleeper.datafiles.sources.arrow_messages import (
    FramingError,
    MessageKind,
    MessageSize,
    read_message_sizes,
)
from sleeper.datafiles.sources.budget import RowBudget
from sleeper.errors import InvalidRequestError

_UNREADABLE = (
    pa.ArrowInvalid,
    pa.ArrowNotImplementedError,
    OSError,
    FramingError,
    UnicodeDecodeError,  # of names
)


def read_stream(
    content: bytes | Path, name: str, row_bytes_min: int, budget: RowBudget | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the batches of an Arrow stream in memory, or in a file on local disk, unchecked.

    `name` is that of the content in errors. A row takes at least `row_bytes_min`. `TooLargeError`
    if the rows exceed the budget: before they are decoded if the metadata tells it.
    """
    try:
        if isinstance(content, bytes):
            yield from _read(io.BytesIO(content), pa.BufferReader(content), row_bytes_min, budget)
        else:
            # A map needs no memory for buffers that are not compressed.
            with content.open("rb") as messages, pa.memory_map(str(content)) as mapped:
                yield from _read(messages, mapped, row_bytes_min, budget)
    except _UNREADABLE as error:
        raise InvalidRequestError(f"{name}: not an Arrow stream: {error}") from error


def _read(
    messages: BinaryIO, content: pa.NativeFile, row_bytes_min: int, budget: RowBudget | None
) -> Iterator[pa.RecordBatch]:
    check = _SizeCheck(row_bytes_min, budget)
    sizes = read_message_sizes(messages)
    if next(sizes, None) is None:
        raise pa.ArrowInvalid("it is empty (expected a schema)")
    with pa.ipc.open_stream(content) as stream:
        stream.schema.names  # noqa: B018 # decodes them
        for size in sizes:
            check.check(size)
            # This reads the dictionaries before a batch, too.
            if size.kind is MessageKind.BATCH:
                yield stream.read_next_batch()


@dataclass(slots=True)
class _SizeCheck:
    """Checks the sizes of messages, of which dictionaries stay in memory."""

    row_bytes_min: int
    budget: RowBudget | None
    _dictionaries: dict[int, int] = field(default_factory=dict)

    def check(self, size: MessageSize) -> None:
        """Raises `TooLargeError` before a message that is too large is decoded."""
        if self.budget is None:
            return
        whole = size.bytes + max(CELL_BYTES * size.cells, self.row_bytes_min * size.rows)
        if size.kind is MessageKind.DICTIONARY:
            earlier = self._dictionaries.get(size.dictionary, 0) if size.is_delta else 0
            self._dictionaries[size.dictionary] = earlier + size.bytes + CELL_BYTES * size.cells
            self.budget.check_memory(sum(self._dictionaries.values()), "the dictionaries")
        elif size.kind is MessageKind.BATCH:
            self.budget.check(whole)
            if size.is_compressed:
                self.budget.check_memory(size.bytes, "a batch of Arrow")
