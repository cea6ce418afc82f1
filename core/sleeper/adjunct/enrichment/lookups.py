"""Fields of rows that are filled from stores when the rows are ingested, by whole columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.adjunct.columns.lookup import ColumnLookup
from sleeper.adjunct.versions.version import StoreVersion
from sleeper.datafiles.arrow import arrow_type, default_column, python_value
from sleeper.errors import UnavailableError
from sleeper.processing.enrichment import Lookup, check_layout, enriched_names
from sleeper.schema.model import Field, Schema


@dataclass(frozen=True, slots=True)
class _Filled:
    """A field of rows, and the store's field that fills it."""

    field: Field
    source: str


@dataclass(frozen=True, slots=True)
class _Bound:
    """A lookup in one version of its store. `on` are the row's fields in the order of the key."""

    store: str
    on: tuple[str, ...]
    filled: tuple[_Filled, ...]
    must_match: bool
    lookup: ColumnLookup

    def fill(
        self,
        columns: dict[str, pa.Array],
        is_exempt: pa.Array | None,
        faults: dict[int, tuple[str, str]],
    ) -> None:
        """Fills nulls in the columns, and adds the faults of rows."""
        rows = len(columns[self.on[0]])
        lacking = pc.indices_nonzero(self._find_lacking(columns, is_exempt))
        if not len(lacking):
            return
        is_whole = len(lacking) == rows
        keys = [columns[name] if is_whole else columns[name].take(lacking) for name in self.on]
        matches = self.lookup.find(pa.RecordBatch.from_arrays(keys, names=list(self.on)))
        for each in self.filled:
            values = matches.values.column(each.source).cast(arrow_type(each.field.type))
            if not is_whole:
                values = _spread(values, lacking, rows)
            columns[each.field.name] = _coalesce(columns[each.field.name], values)
        if self.must_match:
            for index in pc.indices_nonzero(pc.invert(matches.is_present)).to_pylist():
                key = ", ".join(
                    f"{name} {python_value(column[index])!r}"
                    for name, column in zip(self.on, keys, strict=True)
                )
                reason = f"store {self.store!r} has no row for {key}"
                faults.setdefault(lacking[index].as_py(), (self.filled[0].field.name, reason))

    def _find_lacking(
        self, columns: Mapping[str, pa.Array], is_exempt: pa.Array | None
    ) -> pa.Array:
        """Returns whether each row lacks one of the fields."""
        lacks = columns[self.filled[0].field.name].is_null()
        for each in self.filled[1:]:
            lacks = pc.or_(lacks, columns[each.field.name].is_null())
        return lacks if is_exempt is None else pc.and_(lacks, pc.invert(is_exempt))


@dataclass(frozen=True, slots=True)
class StoreEnrichment:
    """The lookups of one job. It implements `RowEnrichment`."""

    names: frozenset[str]
    bound: tuple[_Bound, ...]

    def fill(
        self, columns: dict[str, pa.Array], is_exempt: pa.Array | None
    ) -> dict[int, tuple[str, str]]:
        """See the protocol. A later lookup may use a field that an earlier one fills."""
        faults: dict[int, tuple[str, str]] = {}
        for each in self.bound:
            each.fill(columns, is_exempt, faults)
            for filled in each.filled:
                field = filled.field
                column = columns[field.name]
                if field.default is not None and column.null_count:
                    columns[field.name] = _coalesce(column, default_column(field, len(column)))
        return faults


def bind_lookups(
    lookups: Sequence[Lookup], versions: Mapping[str, StoreVersion], schema: Schema
) -> StoreEnrichment:
    """Returns the lookups in these versions of stores, by the stores' names.

    InvalidRequestError if a lookup does not fit its store.
    """
    bound = tuple(_bind(lookup, versions[lookup.store], schema) for lookup in lookups)
    return StoreEnrichment(enriched_names(lookups), bound)


def _bind(lookup: Lookup, version: StoreVersion, schema: Schema) -> _Bound:
    """Checks that the lookup fits the store as it is now. InvalidRequestError if it does not."""
    filled = tuple(_Filled(schema.field(each.name), each.source) for each in lookup.fields)
    layout = version.state.layout
    if layout is None:
        raise UnavailableError(f"store {lookup.store!r} has no data yet, so its fields are unknown")
    keys = {each.name: each.type for each in layout.keys}
    values = {each.name: each.type for each in layout.values or ()}
    if layout.values is None:
        # Documents have the members that are asked for.
        values = {each.source: each.field.type for each in filled}
    on = check_layout(lookup, schema, keys, values)
    members = pa.schema([(name, arrow_type(kind)) for name, kind in values.items()])
    wanted = sorted({each.source for each in filled})
    fields = wanted if layout.values is not None else members
    # A job reads a version that no longer changes.
    columns = ColumnLookup(lookup.store, version, fields, is_fixed=True)
    return _Bound(lookup.store, on, filled, lookup.must_match(schema), columns)


def _spread(values: pa.Array, indices: pa.Array, rows: int) -> pa.Array:
    """Returns a column that has the values at the indices, and nulls elsewhere."""
    taken = np.zeros(rows, np.int64)
    is_null = np.ones(rows, np.bool_)
    taken[indices] = np.arange(len(values))
    is_null[indices] = False
    return values.take(pa.array(taken, mask=is_null))


def _coalesce(column: pa.Array, values: pa.Array) -> pa.Array:
    """Returns the column with the values in place of nulls."""
    return column if not column.null_count else pc.coalesce(column, values)
