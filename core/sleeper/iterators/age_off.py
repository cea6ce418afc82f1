"""Leaves out rows by age, of a time in any field."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc


class AgeOffByField:
    """Config `field,millis`: leaves out rows whose time is so long ago. A null time stays.

    The field is an int64 of milliseconds since 1970, or a timestamp. For a table and for a
    query. Which rows it leaves out does not depend on other rows, and none comes back later.
    """

    def __init__(
        self,
        schema: pa.Schema,
        row_key: Sequence[str],  # noqa: ARG002
        sort_key: Sequence[str],  # noqa: ARG002
        config: str,
    ) -> None:
        self._field, self._age_ms = _parsed(config)
        if self._field not in schema.names:
            raise ValueError(f"no field {self._field!r}; there are {', '.join(schema.names)}")
        self._kind = schema.field(self._field).type
        if not (pa.types.is_int64(self._kind) or pa.types.is_timestamp(self._kind)):
            raise ValueError(f"field {self._field!r} is {self._kind}: expected a long or timestamp")
        self._oldest = pa.scalar(None, self._kind)

    @staticmethod
    def required_fields(config: str) -> Sequence[str]:
        """Requests the time field."""
        return (_parsed(config)[0],)

    def start_at(self, now_ms: int) -> None:
        """Sets the time from which ages are counted."""
        oldest_ms = max(now_ms - self._age_ms, -(2**63 // 1000))
        if pa.types.is_timestamp(self._kind):
            self._oldest = pa.scalar(oldest_ms * 1000, pa.timestamp("us", self._kind.tz))
        else:
            self._oldest = pa.scalar(oldest_ms, pa.int64())

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            times = batch.column(self._field)
            yield batch.filter(pc.fill_null(pc.greater(times, self._oldest), True))


def _parsed(config: str) -> tuple[str, int]:
    field, comma, age = config.rpartition(",")
    age = age.strip()
    if not comma or not field.strip() or not (age.isascii() and age.isdigit()):
        raise ValueError(f"config {config!r} is not field,millis")
    return field.strip(), int(age)
