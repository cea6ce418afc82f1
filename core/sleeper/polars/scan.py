"""Scans of tables by Polars."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from sleeper.api.instance import Instance, open_instance
from sleeper.api.table import Table
from sleeper.api.table_versions import AsOf
from sleeper.datafiles.arrow import with_text
from sleeper.partitions.json import region_to_json
from sleeper.polars.predicates import find_regions
from sleeper.query.sql.key_predicates import Regions


def scan_sleeper(
    where: Instance | str | os.PathLike[str], table: str, as_of: AsOf | None = None
) -> pl.LazyFrame:
    """Returns a table as a lazy frame, which reads rows in bounded memory when it is collected.

    `where` is an open instance, which must stay open, or a folder or `aws:<instance id>`, which is
    opened for each collection. `as_of` is a version as for `Table.query`; the default is the newest
    at each read. A collection that reads several frames may see a commit in between, unless
    `as_of` is given. Only columns that the frame needs are read, and only the keys that
    comparisons with row key fields (`==`, `<`, `is_between`, `is_in`, joined by `&` and `|`)
    select. `head` ends the reading.

    Raises `NotFoundError` for an unknown table. A collection raises `polars.exceptions` that name
    the errors of `Table.query`, and `SchemaError` if a field was widened after this call.
    """
    with _open_table(where, table) as opened, opened.query(limit=0, as_of=as_of) as rows:
        # Columns that are added later are not in the frame.
        types = _make_frame(rows.to_arrow()).schema
    source = _Source(where, table, as_of, types)
    # Polars would join columns of a field that was widened later with those of the types.
    return register_io_source(
        source.read, schema=types, validate_schema=True, explain_name=f"sleeper {table}"
    )


@contextmanager
def _open_table(where: Instance | str | os.PathLike[str], name: str) -> Iterator[Table]:
    if isinstance(where, Instance):
        yield where.table(name)
        return
    with open_instance(where) as instance:
        yield instance.table(name)


def _make_frame(rows: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    frame = pl.from_arrow(rows.cast(with_text(rows.schema)))
    assert isinstance(frame, pl.DataFrame)
    return frame


@dataclass(frozen=True, slots=True)
class _Source:
    """A table at a version, None for the newest, whose columns have the types."""

    where: Instance | str | os.PathLike[str]
    name: str
    as_of: AsOf | None
    types: pl.Schema

    def read(
        self,
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        _batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        """Yields rows for which the predicate is true. `n_rows` counts those before it."""
        output_names = list(self.types) if with_columns is None else with_columns
        needed = {*output_names, *(() if predicate is None else predicate.meta.root_names())}
        with _open_table(self.where, self.name) as table:
            # Without columns, Polars counts the rows of a frame.
            columns = [name for name in self.types if name in needed] or [next(iter(self.types))]
            regions: Regions = None
            if predicate is not None and n_rows is None:
                regions = find_regions(table.schema, self.types, predicate)
            # No regions would select all rows.
            limit = 0 if regions == [] else n_rows
            selected = [region_to_json(table.schema, region) for region in regions or ()]
            yield self._make_empty(output_names or columns)
            rows = table.query(regions=selected, columns=columns, limit=limit, as_of=self.as_of)
            with rows:
                for batch in rows:
                    frame = _make_frame(batch)
                    if predicate is not None:
                        frame = frame.filter(predicate)
                    yield frame.select(output_names or columns)

    def _make_empty(self, columns: list[str]) -> pl.DataFrame:
        # Polars requires a frame even if there are no rows.
        return pl.DataFrame(schema={name: self.types[name] for name in columns})
