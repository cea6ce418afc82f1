"""Reads a split: the rows of its region, at its version, that meet the constraints.

The rows are in the response, or, if they are many, in blocks in the spill bucket.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sleeper.athena.connector import RAW, Connector, SpillBucket, fields_by_athena_name
from sleeper.athena.constraints import ValueSet
from sleeper.athena.encoding import DATE_MILLI, empty_batch, spilled_bytes
from sleeper.athena.filters import filter_rows, key_regions
from sleeper.athena.requests import ReadRecordsRequest
from sleeper.athena.responses import ReadRecordsResponse, RemoteReadRecordsResponse
from sleeper.athena.split import SpillLocation, Split
from sleeper.athena.splits import check_version_is_kept, constraints_by_field
from sleeper.athena.times import to_date_milli
from sleeper.datafiles.arrow import with_text
from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.partitions.json import region_from_json
from sleeper.processing.restriction import restrict_version, visible_schema
from sleeper.query.engine import QueryTable
from sleeper.query.hold import keep_hold, renew_hold
from sleeper.query.request import Query
from sleeper.query.run import run_query
from sleeper.schema.model import Schema
from sleeper.tables import find_table

_MIB = 1024**2
# A request may allow more than a function's memory.
_BLOCK_BYTES_MAX = 16 * _MIB
# A function's response has at most 6 MiB, and base64 takes a quarter of it.
_INLINE_BYTES_MAX = 4 * _MIB
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Reading:
    """A query, and the constraints, columns and limit to apply to its rows."""

    query: Query
    remaining: Mapping[str, ValueSet]
    columns: tuple[str, ...]
    limit: int | None


def read_records(
    request: ReadRecordsRequest, connector: Connector
) -> ReadRecordsResponse | RemoteReadRecordsResponse:
    """Reads the split's rows, into the response or the spill bucket.

    Constraints on row key fields restrict the read. All others apply to the rows after the
    table's filters, aggregations and iterator. StateMovedOnError if the split's version is not
    kept any more.
    """
    split = request.split
    connector.check_schema_name(request.table.schema_name)
    if split.spill.bucket != connector.spill.name:
        raise InvalidRequestError(
            f"the split's spill bucket is {split.spill.bucket!r} "
            f"(expected {connector.spill.name!r})"
        )
    table = connector.open_table(find_table(connector.tables, None, split.table_id))
    schema = _schema_at(table, split, connector)
    blocks = _Blocks(
        request.schema,
        split,
        connector.spill,
        request.block_bytes_max,
        request.inline_bytes_max,
    )
    clock, seconds = connector.engine().clock, connector.settings.hold_seconds
    with keep_hold(table.store, split.hold_id, clock, seconds):
        for batch in _rows(table, _reading(request, schema), connector):
            blocks.add(_cast(batch, request.schema))
        inline = blocks.finish()
    if inline is not None:
        return ReadRecordsResponse(request.source.catalog, inline)
    return RemoteReadRecordsResponse(
        request.source.catalog, request.schema, blocks.spilled, split.encryption_key
    )


def _schema_at(table: QueryTable, split: Split, connector: Connector) -> Schema:
    """Returns the schema that readers see, and renews the hold on the split's version."""
    seconds = connector.settings.hold_seconds
    with table.store.reading() as state:
        check_version_is_kept(split.version, state.oldest_version, connector)
        at = state.schema_at(split.version)
        restriction = restrict_version(table.restriction, at, state.newest_schema)
        schema = visible_schema(restriction, at)
        now_ms = state.moment(connector.engine().clock())
    expiries = [h.expiry_ms for h in table.store.holds.all() if h.id == split.hold_id]
    # Renews only after half of the time, or each of thousands of splits would.
    if expiries and expiries[0] - now_ms < seconds * 500:
        renew_hold(table.store, split.hold_id, connector.engine().clock(), seconds)
    return schema


def _reading(request: ReadRecordsRequest, schema: Schema) -> _Reading:
    constraints = constraints_by_field(schema, request.constraints)
    summary = constraints.summary
    within = key_regions(schema, summary, region_from_json(schema, request.split.region))
    remaining = {name: each for name, each in summary.items() if name not in within.settled}
    columns = tuple(fields_by_athena_name(schema, request.schema.names).values())
    # A request for no columns, such as a count, still needs one to count rows.
    needed = tuple(dict.fromkeys((*columns, *remaining))) or (schema.row_keys[0].name,)
    limit = constraints.limit
    query = Query(
        within.regions,
        needed,
        None if remaining else limit,
        request.split.version,
        raw=request.table.schema_name == RAW,
    )
    return _Reading(query, remaining, columns, limit)


def _rows(table: QueryTable, reading: _Reading, connector: Connector) -> Iterator[pa.RecordBatch]:
    left = reading.limit
    try:
        # The split's hold keeps the version.
        with run_query(reading.query, table, connector.engine(), is_held=True) as rows:
            for batch in rows:
                batch = batch.cast(with_text(batch.schema))
                batch = filter_rows(batch, reading.remaining).select(reading.columns)
                if left is not None:
                    batch = batch.slice(0, left)
                    left -= batch.num_rows
                yield batch
                if left == 0:
                    return
    except StateMovedOnError as error:
        raise StateMovedOnError(
            f"{error}: the query's version was collected while it was read; run it again, or "
            "set sleeper.athena.hold.seconds higher"
        ) from error


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the columns with the names and types of the request.

    A request for microseconds is of a query that an earlier release planned.
    """
    if not batch.num_columns:
        return batch
    try:
        columns = [
            to_date_milli(c)
            if f.type == DATE_MILLI and pa.types.is_timestamp(c.type)
            else c.cast(f.type)
            for c, f in zip(batch.columns, schema, strict=True)
        ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            f"the types of the request differ from those of the table: {error}"
        ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _Blocks:
    """Collects the rows of one read of a split into blocks, and spills full ones.

    `spilled` are the blocks in the bucket. Athena may read a split twice at the same time, so
    the keys of each read are unique: the split's key, a random id, the number of the block.
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
        """Adds rows of the schema, and spills the block if it is full."""
        for part in _slices(batch, self._block_bytes_max):
            if self._kept_bytes + part.nbytes > self._block_bytes_max:
                self._spill()
            self._kept.append(part)
            self._kept_bytes += part.nbytes

    def finish(self) -> pa.RecordBatch | None:
        """Returns all rows if they fit the response; None if they are `spilled`."""
        if not self.spilled and self._kept_bytes <= self._inline_bytes_max:
            return self._join()
        self._spill()
        return None

    def _spill(self) -> None:
        if not self._kept:
            return
        key = f"{self._split.spill.key}.{self._run}.{len(self.spilled)}"
        content = spilled_bytes(self._join())
        secret = self._split.encryption_key
        if secret is not None:
            content = AESGCM(secret.key).encrypt(secret.nonce, content, None)
        with self._bucket.root.sink(key) as sink:
            sink.write(content)
        self.spilled.append(SpillLocation(self._bucket.name, key, False))
        self._kept, self._kept_bytes = [], 0

    def _join(self) -> pa.RecordBatch:
        if not self._kept:
            return empty_batch(self._schema)
        return pa.concat_batches(self._kept)


def _slices(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Yields slices of at most the bytes, or of one row."""
    if batch.num_rows == 0:
        return
    if batch.nbytes <= bytes_max or batch.num_rows == 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _slices(batch.slice(0, half), bytes_max)
    yield from _slices(batch.slice(half), bytes_max)
