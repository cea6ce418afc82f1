"""A table of a stash as input: each complete stash of a destination is a dataset.

Needs no instance. `_LATEST` names the dataset, and `_SUCCESS` is the marker that ends it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from sleeper.adjunct.contents.writers import MakeRowWriter
from sleeper.adjunct.inputs.dataset import Dataset, DatasetInput, make_dataset, sort_settings
from sleeper.adjunct.inputs.opening import InputRequest
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.errors import DataError, NotFoundError, StateMovedOnError
from sleeper.schema.model import Schema
from sleeper.stash.destination import open_to_read
from sleeper.stash.document_values import document_columns
from sleeper.stash.reader import Stash, StashRows


class StashInput(DatasetInput):
    """A table of the stashes of a destination.

    A dataset is named by its stash. The fields are the table's, without those of documents.
    NotFoundError if the destination is a folder that does not exist.
    """

    def __init__(
        self, destination: str, table: str, make_writer: MakeRowWriter, settings: EngineSettings
    ) -> None:
        self._destination = open_to_read(destination)
        self._table = table
        self._make_writer = make_writer
        self._settings = settings

    def newest(self) -> str | None:
        try:
            return Stash(self._destination).lock()
        except NotFoundError:
            return None

    @contextmanager
    def open(self, dataset: str) -> Iterator[Dataset]:
        if self._destination.success(dataset) is None:
            raise StateMovedOnError(f"{self._destination.name} has no complete stash {dataset}")
        stash = Stash(self._destination)
        stash.lock(dataset)
        try:
            with stash.scan(self._table) as rows:
                schema = self._find_schema(stash)
                writer, batches = self._make_writer(schema), _table_rows(rows, schema)
                yield make_dataset(dataset, batches, schema, writer, self._settings)
        except (DataError, NotFoundError) as error:
            # A stash may be deleted while it is read, its `_SUCCESS` first.
            if self._destination.success(dataset) is None:
                raise StateMovedOnError(str(error)) from error
            raise

    def _find_schema(self, stash: Stash) -> Schema:
        tables = {each.table: each.table_schema for each in stash.describe_tables()}
        return tables[self._table]


def open_input(request: InputRequest) -> StashInput:
    """Opens the table of `stash:DESTINATION#TABLE`."""
    destination, _, table = request.rest.rpartition("#")
    if not destination or not table:
        raise request.error("names no table (expected stash:DESTINATION#TABLE)")
    return StashInput(destination, table, request.make_writer, sort_settings(request.spill))


def _table_rows(rows: StashRows, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yields documents as rows of their table."""
    target = arrow_schema(schema)
    for batch in rows.batches():
        columns = [batch.column(name) for name in document_columns(schema)]
        yield pa.RecordBatch.from_arrays(columns, schema=target)
