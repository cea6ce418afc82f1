"""The Python API: `import sleeper`, open an instance, write and query tables.

```python
import sleeper

with sleeper.open_instance("my-instance") as instance:
    table = instance.table("flights")
    table.ingest(frame)                              # Arrow, pandas, Polars, or batches
    table.query(keys=[["N14228"]]).to_pandas()       # also ranges, regions, columns, as_of
    instance.sql("SELECT count(*) FROM flights").to_arrow()
```

Rows come and go as Arrow: columns of exactly the table's types, in schema order. Errors
are of `sleeper.errors`.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from sleeper.admin import tables as wired_tables
from sleeper.datafiles.arrow import arrow_schema
from sleeper.errors import InvalidRequestError
from sleeper.ingest.run import IngestResult
from sleeper.ingest.service import ingest_paths, ingest_rows, job_id_in_errors
from sleeper.instance import Instance as Ports
from sleeper.jobs.ingest_job import new_job_id
from sleeper.opening import make_instance
from sleeper.opening import open_instance as open_ports
from sleeper.partitions.json import region_from_json
from sleeper.partitions.region import Region
from sleeper.processing.model import Processing
from sleeper.processing.text import iterator_call, parse_aggregations, parse_filters
from sleeper.query.request import Query, region_of_range, regions_of_keys
from sleeper.query.result import QueryResult
from sleeper.query.service import explain_statement, open_query, open_sql, schema_of
from sleeper.query.sql.as_of import as_of_value
from sleeper.query.sql.explain import SqlExplanation
from sleeper.schema.json import schema_from_json, schema_to_json
from sleeper.schema.model import Schema
from sleeper.workers.runner import RunStatus, run_instance

if TYPE_CHECKING:
    import pandas
    import polars

Rows = Any
"""A PyArrow table, batch or reader, an iterable of batches, anything with the Arrow C
stream interface (Polars, DuckDB), a pandas frame, or paths of files."""


def open_instance(where: str | os.PathLike[str] | None = None) -> "Instance":
    """Opens the instance of a folder, or `aws:<instance id>`; by default SLEEPER_INSTANCE's."""
    return Instance(open_ports(where))


def create_instance(
    where: str | os.PathLike[str], properties: Mapping[str, str] | None = None
) -> "Instance":
    """Makes an instance in a new or empty folder, and opens it."""
    make_instance(where, None, properties)
    return open_instance(where)


class Rowset:
    """Rows of a query or statement, read as they are needed, once.

    Iterate for Arrow batches, or take them all at once; close it if you stop early.
    """

    def __init__(self, result: QueryResult) -> None:
        self._result = result
        self.schema: pa.Schema = result.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._result)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """Stops reading and lets the version go."""
        self._result.close()

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream for other Arrow libraries."""
        return self._result.to_reader()

    def to_arrow(self) -> pa.Table:
        """All rows in memory, as a PyArrow table."""
        return self._result.read_all()

    def to_pandas(self) -> "pandas.DataFrame":
        """All rows in memory, as a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> "polars.DataFrame":
        """All rows in memory, as a Polars frame."""
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame


class Table:
    """A table of an open instance."""

    def __init__(self, instance: Ports, name: str) -> None:
        self._instance = instance
        self.name = name
        self.schema: Schema = schema_of(instance, name)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the table's rows, in field order."""
        return arrow_schema(self.schema)

    def ingest(self, rows: Rows, job_id: str | None = None) -> IngestResult:
        """Takes rows in: all of them, in one transaction, or none.

        With a job id, rows that come again under it change nothing. An iterable of batches
        may be larger than memory. InvalidRequestError names the row that does not fit. After
        UnavailableError or an interrupt the rows may be in the table: repeat the call with the
        job id that the error names.
        """
        chosen = job_id or new_job_id()
        paths = _paths_of(rows)
        with job_id_in_errors(chosen, "job_id"):
            if paths is not None:
                return ingest_paths(self._instance, self.name, paths, chosen)
            return ingest_rows(self._instance, self.name, _batches_of(rows), chosen)

    def query(
        self,
        keys: Iterable[Sequence[object]] = (),
        ranges: Iterable[tuple[object | None, object | None]] = (),
        regions: Iterable[Mapping[str, Any]] = (),
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        as_of: int | None = None,
        filters: str = "",
        aggregations: str = "",
        iterator: str | None = None,
        iterator_config: str = "",
    ) -> Rowset:
        """Rows in any of the keys, ranges and regions; all rows if none is given.

        A key has a value per row key field. A range is over the first field: from its
        minimum to below its maximum, None for open. A region is FORMATS' JSON as a mapping,
        strings as they are unless it says `stringsBase64Encoded`. `as_of` is a transaction
        number. `filters` and `aggregations`, written as the table properties are, come after
        the table's own, and then the iterator of a registered name.
        """
        wanted: list[Region] = list(regions_of_keys(self.schema, keys))
        wanted += [region_of_range(self.schema, low, high) for low, high in ranges]
        plain = {"stringsBase64Encoded": False}
        wanted += [region_from_json(self.schema, {**plain, **region}) for region in regions]
        query = Query(
            tuple(wanted) or None,
            None if columns is None else tuple(columns),
            limit,
            as_of,
            Processing(
                parse_filters(filters),
                parse_aggregations(aggregations),
                iterator_call(iterator, iterator_config),
            ),
        )
        return Rowset(open_query(self._instance, self.name, query))

    @property
    def version(self) -> int:
        """The number of the newest transaction: what `as_of` takes."""
        with self._instance.table(self.name).state.reading() as state:
            return int(state.number)


class Instance:
    """An open instance. Close it, or use it in a `with`."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the instance's files."""
        self._ports.close()

    def tables(self) -> list[str]:
        """The names of all tables."""
        return [ref.name for ref in self._ports.tables.index.list()]

    def table(self, name: str) -> Table:
        """A table by name; NotFoundError if there is none."""
        return Table(self._ports, name)

    def create_table(
        self,
        name: str,
        schema: Schema | Mapping[str, Any] | str,
        properties: Mapping[str, str] | None = None,
        split_points: Sequence[object] = (),
    ) -> Table:
        """Makes a table from a schema: an object, or schema JSON as text or a mapping."""
        if isinstance(schema, Schema):
            text = schema_to_json(schema)
        else:
            text = schema if isinstance(schema, str) else json.dumps(schema)
        schema_from_json(text)
        wired_tables.create_table(self._ports, name, text, properties, split_points)
        return self.table(name)

    def delete_table(self, name: str) -> None:
        """Deletes a table: it is gone at once, its files by and by."""
        wired_tables.delete_table(self._ports, name)

    def sql(self, statement: str, as_of: int | Mapping[str, int] | None = None) -> Rowset:
        """Runs one SELECT over all tables, each at its newest version.

        `as_of` is a transaction number of the statement's only table, or one for each table
        by name that is not to be read at its newest version.
        """
        return Rowset(open_sql(self._ports, statement, as_of=as_of_value(as_of)))

    def explain(
        self, statement: str, as_of: int | Mapping[str, int] | None = None
    ) -> SqlExplanation:
        """Runs a SELECT, passes over its rows, and tells what it read of each table."""
        return explain_statement(self._ports, statement, as_of_value(as_of))

    def run_until_idle(self, workers: int | None = None) -> RunStatus:
        """Does all background work there is: queued jobs, compaction, splitting, collection.

        InvalidRequestError on AWS, where it is done without being asked.
        """
        return run_instance(self._ports, until_idle=True, workers=workers)


def _paths_of(rows: Rows) -> list[str] | None:
    if isinstance(rows, str | Path):
        return [os.fspath(rows)]
    if isinstance(rows, list | tuple) and rows and all(isinstance(r, str | Path) for r in rows):
        return [os.fspath(r) for r in rows]
    return None


def _batches_of(rows: Rows) -> Iterator[pa.RecordBatch]:
    if isinstance(rows, pa.RecordBatch):
        yield rows
    elif isinstance(rows, pa.Table):
        yield from rows.to_batches()
    elif type(rows).__module__.partition(".")[0] == "pandas":
        yield from pa.Table.from_pandas(rows, preserve_index=False).to_batches()
    elif hasattr(rows, "__arrow_c_stream__"):
        yield from pa.RecordBatchReader.from_stream(rows)
    elif isinstance(rows, Iterable):
        for each in rows:
            if not isinstance(each, pa.RecordBatch | pa.Table):
                raise InvalidRequestError(
                    f"rows must come as Arrow batches, not {type(each).__name__}"
                )
            yield from each.to_batches() if isinstance(each, pa.Table) else [each]
    else:
        raise InvalidRequestError(f"cannot take rows from a {type(rows).__name__}")
