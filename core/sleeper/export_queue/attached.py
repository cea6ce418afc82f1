"""Exports that a transaction attaches, from the call until its commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sleeper.datafiles.arrow import arrow_type
from sleeper.datafiles.casts import cast_column, is_castable
from sleeper.datafiles.json_python import write_json
from sleeper.datafiles.key_values import from_key_values
from sleeper.errors import InvalidRequestError, did_you_mean
from sleeper.export_queue.definition import ExportQueue, ExportSource, parse_definition
from sleeper.export_queue.rows import encode_rows, rows_schema
from sleeper.export_queue.table_queries import queues_in
from sleeper.export_queue.transactions import ExportRows, QueueExports
from sleeper.schema.key_values import check_key_value
from sleeper.schema.model import PLAIN_KEY_TYPES, Field, Key, MapType, PrimitiveType, type_name
from sleeper.statestore.reading.table_state import TableState

EXPORT_BYTES_MAX = 4 * 1_048_576
"""The largest size of the encoded exports of one transaction, which is one entry of the log."""

_ARROW_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The exports of one queue: values by key, None for a key that is gone."""

    queue: ExportQueue
    generation: int
    values: dict[Key, tuple[Any, ...] | None] = field(default_factory=dict)

    def encode(self) -> QueueExports:
        queue, rows = self.queue, list(self.values.values())
        tombstones = pa.array([row is None for row in rows], pa.bool_())
        empty = (None,) * len(queue.values)
        columns = [*zip(*self.values, strict=True)]
        columns += zip(*(empty if row is None else row for row in rows), strict=True)
        kinds = rows_schema(queue).remove(0)
        arrays = [
            from_key_values(column, kind) if position < len(queue.keys) else pa.array(column, kind)
            for position, (column, kind) in enumerate(zip(columns, kinds.types[1:], strict=True))
        ]
        batch = pa.RecordBatch.from_arrays([tombstones, *arrays], schema=kinds)
        return QueueExports(queue.name, self.generation, len(rows), encode_rows([batch]))


class AttachedExports:
    """The exports of one transaction to queues of its table. The last one of a key is kept."""

    kind = ExportRows.kind

    def __init__(self, state: TableState) -> None:
        self._queues = {each.name: each for each in queues_in(state).all()}
        self._used: dict[str, _Rows] = {}

    def add(self, name: str, key: object, value: object) -> None:
        """Adds an export. None as the value means that the key is gone.

        InvalidRequestError for an unknown queue, a queue that does not take exports of
        transactions, and a key or value that does not fit its fields.
        """
        rows = self._used.get(name) or self._open(name)
        queue = rows.queue
        checked = tuple(
            _check_key(queue, each, part)
            for each, part in zip(queue.keys, _parts(queue, "key", queue.keys, key), strict=True)
        )
        rows.values[checked] = None if value is None else _check_values(queue, value)

    def change(self, transaction_id: str) -> ExportRows | None:
        """Returns the exports for the log, None without any. InvalidRequestError if too large."""
        encoded = tuple(rows.encode() for rows in self._used.values() if rows.values)
        size = sum(len(each.rows) for each in encoded)
        if size > EXPORT_BYTES_MAX:
            names = ", ".join(each.queue for each in encoded)
            raise InvalidRequestError(
                f"the exports of the transaction to {names} have {size:,} bytes (expected at most "
                f"{EXPORT_BYTES_MAX:,}: for more, create a queue that exports the changes of the "
                "table, with --on ingest)"
            )
        return ExportRows(encoded, id=transaction_id) if encoded else None

    def _open(self, name: str) -> _Rows:
        stored = self._queues.get(name)
        if stored is None:
            raise InvalidRequestError(
                f"the table has no export queue {name!r}{did_you_mean(name, self._queues)} "
                f"(expected one of: {', '.join(sorted(self._queues)) or 'none'})"
            )
        queue = parse_definition(stored.definition)
        if queue.source is not ExportSource.TRANSACTION:
            raise InvalidRequestError(
                f"export queue {name!r} exports the rows of each {queue.source.value} (expected a "
                "queue created with --on transaction)"
            )
        rows = self._used[name] = _Rows(queue, stored.generation)
        return rows


def _parts(
    queue: ExportQueue, what: str, fields: Sequence[Field], given: object
) -> Sequence[object]:
    """Returns the values of the fields, of a mapping, a tuple or the value of a single field."""
    names = [each.name for each in fields]
    if isinstance(given, Mapping) and not _is_map_value(fields, given):
        for name in given:
            if name not in names:
                raise InvalidRequestError(
                    f"export queue {queue.name!r}: unknown field {name!r} in the {what} (expected "
                    f"{', '.join(names) or 'none'})"
                )
        for name in names:
            if name not in given:
                raise InvalidRequestError(
                    f"export queue {queue.name!r}: the {what} lacks field {name!r} (expected "
                    f"{', '.join(names)})"
                )
        return [given[name] for name in names]
    if isinstance(given, tuple) or (isinstance(given, list) and len(fields) != 1):
        if len(given) != len(fields):
            raise InvalidRequestError(
                f"export queue {queue.name!r}: the {what} has {len(given)} values (expected "
                f"{len(fields)}: {', '.join(names)})"
            )
        return given
    if len(fields) == 1:
        return [given]
    raise InvalidRequestError(
        f"export queue {queue.name!r}: the {what} is {given!r:.80} (expected "
        f"{'a tuple or mapping of ' + ', '.join(names) if names else '(), as it has no fields'})"
    )


def _is_map_value(fields: Sequence[Field], given: Mapping[object, object]) -> bool:
    """Returns whether a mapping is the value of the only field, not a mapping of fields."""
    return len(fields) == 1 and isinstance(fields[0].type, MapType) and [*given] != [fields[0].name]


def _check_key(queue: ExportQueue, key_field: Field, value: object) -> Any:
    try:
        return check_key_value(key_field, value)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"export queue {queue.name!r}: {error}") from error


def _check_values(queue: ExportQueue, value: object) -> tuple[Any, ...]:
    parts = _parts(queue, "value", queue.values, value)
    return tuple(
        _check_value(queue, each, part) for each, part in zip(queue.values, parts, strict=True)
    )


def _check_value(queue: ExportQueue, value_field: Field, value: object) -> Any:
    kind = value_field.type
    if value is None:
        return None
    # The engine's values of these types need no conversion.
    if kind in PLAIN_KEY_TYPES and type(value) in (int, str, bytes):
        return _check_key(queue, value_field, value)
    try:
        if isinstance(kind, MapType) and isinstance(value, Mapping):
            column = pa.array([[*value.items()]], arrow_type(kind))
        elif kind is PrimitiveType.JSON:
            column = pa.array([write_json(value)])
        else:
            column = pa.array([value])
        if is_castable(column.type, kind):
            result, bad = cast_column(column, value_field)
            if not bad:
                return result[0].as_py()
    except _ARROW_ERRORS:
        pass
    raise InvalidRequestError(
        f"export queue {queue.name!r}: field {value_field.name!r}: {type(value).__name__} "
        f"{value!r:.80} does not fit (expected {type_name(kind)})"
    )
