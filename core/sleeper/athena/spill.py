"""Gathers rows into blocks: one for the answer, or, if they are many, blocks in the bucket."""

import uuid
from collections.abc import Iterator

import pyarrow as pa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sleeper.athena.blocks import spilled_bytes
from sleeper.athena.connector import SpillBucket
from sleeper.athena.split import SpillLocation, Split

_MIB = 1024**2
# What is asked for may be more than a function has memory for.
_BLOCK_BYTES_MAX = 16 * _MIB
# An answer of a function may have 6 MiB, of which base64 takes a quarter.
_INLINE_BYTES_MAX = 4 * _MIB


class Blocks:
    """Rows of one run of a split, in the order in which they are added.

    `spilled` are the blocks that are in the bucket. Athena may read a split twice, and both
    runs may go on at once; so that their blocks are never mixed, each run has names of its
    own: the split's key, the run, the number of the block.
    """

    def __init__(
        self,
        schema: pa.Schema,
        split: Split,
        bucket: SpillBucket,
        block_bytes_max: int,
        inline_bytes_max: int,
    ) -> None:
        self.spilled: list[SpillLocation] = []
        self._schema = schema
        self._split = split
        self._bucket = bucket
        self._block_bytes_max = max(min(block_bytes_max, _BLOCK_BYTES_MAX), 1)
        self._inline_bytes_max = min(inline_bytes_max, _INLINE_BYTES_MAX)
        self._run = uuid.uuid4().hex[:12]
        self._kept: list[pa.RecordBatch] = []
        self._kept_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds rows of the schema, and spills a block when it is full."""
        for part in _parts(batch, self._block_bytes_max):
            if self._kept_bytes + part.nbytes > self._block_bytes_max:
                self._spill()
            self._kept.append(part)
            self._kept_bytes += part.nbytes

    def finish(self) -> pa.RecordBatch | None:
        """All rows, if they may be in the answer; None if they are `spilled`."""
        if not self.spilled and self._kept_bytes <= self._inline_bytes_max:
            return self._together()
        self._spill()
        return None

    def _spill(self) -> None:
        if not self._kept:
            return
        key = f"{self._split.spill.key}.{self._run}.{len(self.spilled)}"
        content = spilled_bytes(self._together())
        secret = self._split.encryption_key
        if secret is not None:
            content = AESGCM(secret.key).encrypt(secret.nonce, content, None)
        with self._bucket.root.sink(key) as sink:
            sink.write(content)
        self.spilled.append(SpillLocation(self._bucket.name, key, False))
        self._kept, self._kept_bytes = [], 0

    def _together(self) -> pa.RecordBatch:
        if not self._kept:
            return pa.RecordBatch.from_arrays(
                [pa.nulls(0, field.type) for field in self._schema], schema=self._schema
            )
        return pa.concat_batches(self._kept)


def _parts(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices that are not larger, or of one row."""
    if batch.num_rows == 0:
        return
    if batch.nbytes <= bytes_max or batch.num_rows == 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _parts(batch.slice(0, half), bytes_max)
    yield from _parts(batch.slice(half), bytes_max)
