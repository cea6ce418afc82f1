"""Streams that the API returns: rows of queries, and changes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from sleeper.api.notebook import result_html
from sleeper.datafiles.arrow import with_text
from sleeper.datafiles.json_python import python_rows
from sleeper.errors import InvalidRequestError
from sleeper.query.changes.read import Change, check_columns, feed_schema
from sleeper.query.changes.reader import ChangeReader
from sleeper.query.result import QueryResult

if TYPE_CHECKING:
    import pandas
    import polars


class Rowset:
    """The rows of a query or SQL statement: a stream that can be read once.

    Iteration yields `pyarrow.RecordBatch` objects; the `to_...` methods read all rows. The stream
    reads data files on demand, in bounded memory, and keeps no rows. It is a context manager and
    has the Arrow C stream interface. Close it to stop before the last row. `schema` is the Arrow
    schema of the rows.

    Reading raises `StateMovedOnError` if garbage collection deleted a data file of the version
    that is read, `InvalidRequestError` if the query exceeds a limit of rows or time, or if the rows
    were read before or the result was closed, and `DataError` if a data file is missing or damaged.
    An iteration that was left can be continued.
    """

    def __init__(self, result: QueryResult) -> None:
        self._result = result
        self._is_iterated = False
        self._is_streamed = False
        self.schema: pa.Schema = result.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self._check_unread(is_iteration=True)
        self._is_iterated = True
        return iter(self._result)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        columns = ", ".join(f"{each.name}: {each.type}" for each in self.schema)
        return f"<{type(self).__name__} of {columns} ({self._state()})>"

    def _repr_html_(self) -> str:
        return result_html(((each.name, str(each.type)) for each in self.schema), self._state())

    def _state(self) -> str:
        # Rows in a representation would be missing in what is read next.
        if self._is_streamed or self._is_iterated:
            return "its rows were read"
        return "closed" if self._result.is_closed else "not read yet, to_arrow() reads it"

    def close(self) -> None:
        """Stops reading and releases the version of the table."""
        self._result.close()

    def to_reader(self) -> pa.RecordBatchReader:
        """Returns the rows as a stream for other Arrow libraries."""
        self._check_unread()
        return pa.RecordBatchReader.from_batches(self.schema, self._stream())

    def to_arrow(self) -> pa.Table:
        """Reads all rows into memory, as a PyArrow table."""
        self._check_unread()
        self._is_streamed = True
        return self._result.read_all()

    def to_pylist(self) -> list[dict[str, Any]]:
        """Reads all rows into memory, as dictionaries from names of columns to values.

        A value of a `JSONType` field is that of its JSON, such as a dictionary or a list. A row
        that has none lacks the name, while a `null` of JSON is `None`.
        """
        self._check_unread()
        self._is_streamed = True
        return [row for batch in self._result.read_all().to_batches() for row in python_rows(batch)]

    def to_pandas(self) -> "pandas.DataFrame":
        """Reads all rows into memory, as a pandas data frame. Requires pandas."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> "polars.DataFrame":
        """Reads all rows into memory, as a Polars data frame, JSON as text. Requires Polars."""
        import polars

        rows = self.to_arrow()
        frame = polars.from_arrow(rows.cast(with_text(rows.schema)))
        assert isinstance(frame, polars.DataFrame)
        return frame

    def _stream(self) -> Iterator[pa.RecordBatch]:
        # Libraries open streams only for their schemas, so the first batch begins the reading.
        self._check_unread()
        self._is_streamed = True
        yield from self._result

    def _check_unread(self, is_iteration: bool = False) -> None:
        if self._is_streamed or (self._is_iterated and not is_iteration):
            state = "were read before"
        elif self._result.is_closed:
            state = "were read before" if self._is_iterated else "are those of a closed result"
        else:
            return
        raise InvalidRequestError(
            f"the rows {state} (expected an unread result: repeat the query, or keep the table "
            "that to_arrow returned)"
        )


class Changes:
    """The changes of a table in the order of their transactions: a stream that can be read once.

    Iteration yields `Change` objects. A change has `number`, `time_ms`, `time` and `job` of its
    transaction, and an `operation`:

    - `insert`: `rows` is a `pyarrow.RecordBatch` of added rows. The rows of a transaction are in
      key order, and may come as several changes.
    - `upsert`: as `insert`, for a table of latest rows: `rows` replace those of smaller numbers
      with the same row and sort keys.
    - `delete`: the rows of smaller numbers with the keys in `rows` were deleted.
    - `delete_region`: the rows of smaller numbers in `regions` were deleted, a list of regions as
      for `delete`.
    - `replace`: all rows were removed. The content of the table follows as inserts of the number.

    `to_arrow` of a change returns its rows with the columns `number`, `time`, `job`, `operation`,
    `row` and `region`, and `schema` is the Arrow schema of these.

    `start` is the number after which the changes begin, and `position` the number up to which all
    were taken. A change is taken when the next one is requested. The object is a context manager.
    """

    def __init__(self, reader: ChangeReader) -> None:
        self._reader = reader
        self.schema: pa.Schema = feed_schema(reader.schema)
        self.start: int = reader.start

    def __iter__(self) -> Iterator[Change]:
        return iter(self._reader)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops reading. The progress that was not recorded yet is read again."""
        self._reader.close()

    @property
    def position(self) -> int:
        """The number of the last transaction whose changes were all taken."""
        return self._reader.position

    def commit(self) -> None:
        """Records the position for the follower at once; iteration does so from time to time."""
        self._reader.commit()

    def stop(self) -> None:
        """Ends an iteration that follows, from another thread, after the current transactions."""
        self._reader.stop()

    def to_reader(self) -> pa.RecordBatchReader:
        """Returns the changes as a stream of rows for other Arrow libraries."""
        schema = self._reader.schema
        batches = (check_columns(change, schema).to_arrow() for change in self)
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def to_arrow(self) -> pa.Table:
        """Reads all changes into memory, as a PyArrow table."""
        return self.to_reader().read_all()
