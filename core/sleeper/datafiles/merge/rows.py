"""The merge of few rows in memory, without the engine, whose plans take milliseconds.

It returns the rows that a merge of the same inputs by the engine returns.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import arrow_schema, default_column
from sleeper.datafiles.conversions import as_numbers, empty_table, integer_array
from sleeper.datafiles.key_values import as_key_column
from sleeper.datafiles.merge.first_of_key import FirstOfKey
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.schema.model import DELETED_COLUMN, HIDDEN_COLUMNS, NUMBER_COLUMN, Schema


def needed_names(request: MergeRequest, each: MergeInput) -> list[str]:
    """Returns the columns of an input that a merge needs: all of them for processing."""
    stored = request.stored_fields(each, each.schema_version)
    if request.columns is None or request.steps:
        return [field.name for field in stored.fields]
    schema = request.schema
    names = {*request.columns, *(field.name for field in schema.keys)}
    if schema.latest is not None and schema.latest.by is not None:
        names.add(schema.latest.by)
    needed = {field.id for field in schema.fields if field.name in names}
    hidden = () if schema.latest is None else HIDDEN_COLUMNS
    return [field.name for field in stored.fields if field.id in needed or field.name in hidden]


def merge_rows(request: MergeRequest) -> pa.Table:
    """Returns the rows of inputs in memory, in key order. The request has no processing."""
    schema = request.schema
    names = [field.name for field in schema.fields] if request.columns is None else request.columns
    tables = [_mapped(request, each, names) for each in request.inputs]
    tables = [table for table in tables if table.num_rows]
    if not tables:
        return empty_table(pa.schema([arrow_schema(schema).field(name) for name in names]))
    whole = tables[0]
    if len(tables) > 1:
        whole = pa.concat_tables(tables)
        whole = whole.take(sorted_positions(whole, _order(schema)))
    if schema.latest is not None:
        whole = _keep_latest(whole.combine_chunks(), schema)
    return whole.select(list(names)).slice(0, request.limit)


def _order(schema: Schema) -> list[tuple[str, str]]:
    order = [(field.name, "ascending") for field in schema.keys]
    if schema.latest is not None:
        if schema.latest.by is not None:
            order.append((schema.latest.by, "descending"))
        order.append((NUMBER_COLUMN, "descending"))
    return order


def _mapped(request: MergeRequest, each: MergeInput, names: Sequence[str]) -> pa.Table:
    """Returns the undeleted rows of an input with the fields of the schema and hidden columns."""
    schema, rows = request.schema, each.rows
    assert rows is not None
    if each.deleted is not None and rows.num_rows:
        keys = [_whole(rows.column(field.name)) for field in schema.row_keys]
        dropped: list[int] = []
        kept = each.deleted.keep(*keys, on_dropped=dropped.append)
        # Mostly no row of a lookup is deleted, and to filter takes as long as to find that.
        rows = rows.filter(kept) if dropped else rows
    stored = request.stored_fields(each, each.schema_version)
    # Tables are joined by schemas, which tell whether a field is nullable. Rows that were read
    # from single pages do not.
    kinds = arrow_schema(schema)
    if stored.version == schema.version and schema.latest is None:
        present = rows.schema.names
        if present != kinds.names:
            kinds = pa.schema([kinds.field(name) for name in present])
        return pa.Table.from_arrays(rows.columns, schema=kinds)
    wanted = {*names, *(name for name, _ in _order(schema))}
    by_id = {field.id: field.name for field in stored.fields}
    fields, columns = [], []
    for field in schema.fields:
        if field.name not in wanted:
            continue
        kind = kinds.field(field.name)
        fields.append(kind)
        if field.id in by_id:
            columns.append(rows.column(by_id[field.id]).cast(kind.type))
        else:
            columns.append(default_column(field, rows.num_rows))
    if schema.latest is not None:
        fields += [pa.field(DELETED_COLUMN, pa.bool_()), pa.field(NUMBER_COLUMN, pa.int64())]
        columns.append(rows.column(DELETED_COLUMN))
        columns.append(
            rows.column(NUMBER_COLUMN)
            if each.number is None
            else integer_array(np.full(rows.num_rows, each.number, np.int64))
        )
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _keep_latest(rows: pa.Table, schema: Schema) -> pa.Table:
    """Keeps the first row of each key, if it is no tombstone."""
    columns = [DELETED_COLUMN, *(field.name for field in schema.keys)]
    arrays = [rows.column(name).chunk(0) for name in columns]
    return rows.filter(FirstOfKey().find_rows(*arrays))


_RANKED_ROWS_MIN = 5_000
_RANK_BYTES = 8
# With more rows of equal numbers, Arrow sorts all rows.
_TIED_SHARE_MAX = 0.5
_MASKS = np.array([2**64 - 2 ** (64 - 8 * n) for n in range(_RANK_BYTES + 1)], np.uint64)
_Numbers = npt.NDArray[np.int64]
_Ranks = npt.NDArray[np.uint64]


def sorted_positions(rows: pa.Table, order: Sequence[tuple[str, str]]) -> pa.Array:
    """Returns the places of the rows in this order of columns and directions; a stable sort.

    The first column has keys, ascending.
    """
    # Arrow compares the values of rows again and again. So each row gets a number of the first
    # bytes of its first key, or of those after the bytes that all keys share. NumPy sorts the
    # numbers, and Arrow only the rows of equal ones.
    if rows.num_rows < _RANKED_ROWS_MIN:
        return pc.sort_indices(rows, sort_keys=list(order))
    keys = as_key_column(rows.column(order[0][0]).combine_chunks())
    positions, is_same, tied = _place(_ranks(keys, 0))
    if len(tied) > _TIED_SHARE_MAX * len(positions):
        positions, is_same, tied = _place(_ranks(keys, _count_shared(keys)))
    if len(tied) > _TIED_SHARE_MAX * len(positions):
        return pc.sort_indices(rows, sort_keys=list(order))
    if len(tied):
        groups = np.cumsum(np.append(True, ~is_same))[tied]
        some = rows.select([name for name, _ in order]).take(integer_array(positions[tied]))
        names = [str(position) for position in range(len(order))]
        some = some.rename_columns(names).append_column("group", integer_array(groups))
        directions = [(name, way) for name, (_, way) in zip(names, order, strict=True)]
        within = pc.sort_indices(some, sort_keys=[("group", "ascending"), *directions])
        positions[tied] = positions[tied][as_numbers(within)]
    return integer_array(positions)


def _place(ranks: _Ranks) -> tuple[_Numbers, npt.NDArray[np.bool_], _Numbers]:
    """Returns the order of the numbers, whether each next one is the same, and places of these."""
    positions: _Numbers = np.argsort(ranks, kind="stable")
    in_order = ranks[positions]
    is_same = in_order[1:] == in_order[:-1]
    return positions, is_same, np.flatnonzero(np.append(is_same, False) | np.append(False, is_same))


def _ranks(keys: pa.Array, shared: int) -> _Ranks:
    """Returns a number of each key, whose first bytes are `shared` by all.

    A smaller number has a smaller key. Equal numbers may have different keys.
    """
    if pa.types.is_integer(keys.type):
        signed: _Ranks = as_numbers(keys).astype(np.int64).view(np.uint64)
        return signed ^ np.uint64(2**63)
    _, offsets, content = keys.buffers()
    ends = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    values = b"" if content is None else content.to_pybytes()
    starts = ends[:-1] + shared
    # The eight bytes from each place on, of which many overlap.
    windows = np.ndarray((len(values) + 1,), ">u8", values + bytes(_RANK_BYTES), strides=(1,))
    ranks: _Ranks = windows[starts].astype(np.uint64)
    sizes = ends[1:] - starts
    if len(sizes) and sizes.min() < _RANK_BYTES:
        # Bytes after the end of a key are those of the next one.
        ranks &= _MASKS[np.minimum(sizes, _RANK_BYTES)]
    return ranks


def _count_shared(keys: pa.Array) -> int:
    """Returns the number of first bytes that all keys share."""
    if pa.types.is_integer(keys.type):
        return 0
    bounds = pc.min_max(keys.cast(pa.binary()))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    pairs = zip(low, high, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(low), len(high)))
