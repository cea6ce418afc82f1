"""Views of DuckDB over tables."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sleeper.api.instance import Instance
from sleeper.api.table import Table
from sleeper.api.table_versions import AsOf
from sleeper.duckdb.predicates import find_regions
from sleeper.errors import InvalidRequestError
from sleeper.partitions.json import region_to_json

if TYPE_CHECKING:
    import duckdb


def register_tables(
    connection: "duckdb.DuckDBPyConnection",
    instance: Instance,
    tables: Sequence[str] = (),
    as_of: AsOf | None = None,
) -> None:
    """Registers tables of an open instance as views of a connection, by their names.

    `tables` are names; the default is all tables. `as_of` is a version as for `Table.query`; the
    default is the newest at each read. A statement that reads a table twice, or several tables, may
    see a commit in between, unless `as_of` is given. It streams only the columns that it needs,
    and only the keys that its comparisons with row key fields of integers, text and bytes select.
    The instance must stay open. Columns that are added later need another call.

    Raises `NotFoundError` for an unknown table, and `InvalidRequestError` for two tables whose
    names differ only in the case of ASCII letters, because DuckDB ignores that.
    """
    names = dict.fromkeys(tables or instance.tables())
    _check_names_differ(names)
    for name in names:
        connection.register(name, _TableDataset(instance.table(name), as_of))


def _check_names_differ(names: Iterable[str]) -> None:
    names_by_case: dict[bytes, str] = {}
    for name in names:
        # The methods of bytes know no other letters than those of ASCII, like DuckDB.
        other = names_by_case.setdefault(name.encode().lower(), name)
        if other != name:
            raise InvalidRequestError(
                f"tables {other!r} and {name!r} have the same name in DuckDB (expected one of them)"
            )


class _TableDataset(ds.Dataset):  # type: ignore[misc]
    """A table as DuckDB sees it, which reads `schema` and calls `scanner` only."""

    def __init__(self, table: Table, as_of: AsOf | None) -> None:
        self._table = table
        self._as_of = as_of
        with table.query(limit=0, as_of=as_of) as rows:
            self._schema = rows.schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def scanner(
        self,
        columns: list[str] | None = None,
        filter: pc.Expression | None = None,
        **_options: Any,
    ) -> ds.Scanner:
        """Returns a scan of the columns of the rows for which the filter is true."""
        output_names = self._schema.names if columns is None else columns
        read = self._columns_to_read(output_names, filter)
        schema = self._table.schema
        regions = None if filter is None else find_regions(schema, self._schema, filter)
        rows = self._table.query(
            regions=[region_to_json(schema, region) for region in regions or ()],
            columns=read,
            # No regions would select all rows.
            limit=0 if regions == [] else None,
            as_of=self._as_of,
        )
        return ds.Scanner.from_batches(rows.to_reader(), columns=output_names, filter=filter)

    def _columns_to_read(self, output_names: list[str], filter: pc.Expression | None) -> list[str]:
        names: list[str] = self._schema.names
        text = "" if filter is None else str(filter)
        read = [name for name in names if name in output_names or name in text] or names[:1]
        try:
            chosen = pa.schema([self._schema.field(name) for name in read])
            if filter is not None:
                chosen.empty_table().filter(filter)
        except pa.ArrowException:
            return names  # Arrow writes a name in another way.
        return read
