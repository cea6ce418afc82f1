"""The processing of a table's or a query's rows, with iterators bound to the table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sleeper.datafiles.arrow import arrow_schema, with_text
from sleeper.errors import InvalidRequestError, UserCodeError
from sleeper.iterators.protocol import RowIterator
from sleeper.processing.model import IteratorCall, Processing
from sleeper.schema.model import Schema
from sleeper.user_code.calls import contain_errors
from sleeper.user_code.loading import BUILT_IN_CODE, UserCode
from sleeper.user_code.wheel import CodeKind

_GROUP_ROWS_MAX = 1_000_000
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class BoundIterator:
    """An iterator call with its class and table. `rows_max` limits a group."""

    call: IteratorCall
    make: Callable[[Any, Sequence[str], Sequence[str], str], RowIterator]
    table: str
    rows_max: int

    def start(self, schema: Schema, now_ms: int) -> RowIterator:
        """Creates the iterator. InvalidRequestError if it refuses its config or the fields."""
        row_key, sort_key = ([f.name for f in keys] for keys in (schema.row_keys, schema.sort_keys))
        try:
            with contain_errors(self.failure, passed=(ValueError,)):
                fields = with_text(arrow_schema(schema))
                iterator = self.make(fields, row_key, sort_key, self.call.config)
                start_at = getattr(iterator, "start_at", None)
                if start_at is not None:
                    start_at(now_ms)
        except ValueError as error:
            raise InvalidRequestError(f"iterator {self.call.name!r}: {error}") from error
        return iterator

    def required_fields(self, schema: Schema) -> tuple[str, ...] | None:
        """Returns the value fields that it needs in addition to a query's, None for all."""
        required_fields = getattr(self.make, "required_fields", None)
        if required_fields is None:
            return None
        try:
            with contain_errors(self.failure, passed=(ValueError,)):
                names = tuple(required_fields(self.call.config))
        except ValueError as error:
            raise InvalidRequestError(f"iterator {self.call.name!r}: {error}") from error
        for name in names:
            schema.field(name)
        return names

    def check(self, schema: Schema) -> None:
        """Raises InvalidRequestError if it refuses its config or needs an unknown field."""
        self.start(schema, 0)
        self.required_fields(schema)

    def failure(self, reason: str, key: Sequence[object] | None = None) -> UserCodeError:
        """Returns the error of a failed run, with the key if known."""
        where = "" if key is None else f" at key {format_key(key)}"
        return UserCodeError(
            f"iterator {self.call.name!r} on table {self.table!r}{where}: {reason}"
        )


@dataclass(frozen=True, slots=True)
class TableIterators:
    """Binds iterators to the rows of a table."""

    table: str = ""
    code: UserCode = BUILT_IN_CODE
    group_rows_max: Callable[[], int] = lambda: _GROUP_ROWS_MAX

    def bind(self, call: IteratorCall | None) -> BoundIterator | None:
        """Returns the bound iterator of a call. InvalidRequestError if it is not registered."""
        if call is None:
            return None
        make = self.code.load(CodeKind.ITERATOR, call.name)
        return BoundIterator(call, make, self.table, self.group_rows_max())


def format_key(key: Sequence[object]) -> str:
    """Returns the values of a key as text of limited length."""
    text = ", ".join(repr(value) for value in key)
    return f"({text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + '...'})"


@dataclass(frozen=True, slots=True)
class ProcessingStep:
    """A processing, the current time for its filters, and its bound iterator.

    The plan does not run the iterator. It follows the step's aggregations.
    """

    processing: Processing
    now_ms: int
    iterator: BoundIterator | None = None
