"""An iterator that removes rows whose labels the caller lacks."""

import csv
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc


class RowSecurity:
    """Config `field,label,label,…`: a row passes if the config contains all of its labels.

    The field is a string of comma-separated labels, or a list of strings. A row without labels
    passes, and a row with a null does not. Labels are compared exactly. The service that queries
    for a caller passes the caller's labels, and must not let the caller choose aggregations, which
    run before the iterator. Callers that can query without the iterator see all rows.
    """

    def __init__(
        self,
        schema: pa.Schema,
        row_key: Sequence[str],  # noqa: ARG002
        sort_key: Sequence[str],  # noqa: ARG002
        config: str,
    ) -> None:
        self._field, self._held = _parsed(config)
        if self._field not in schema.names:
            raise ValueError(f"no field {self._field!r}; there are {', '.join(schema.names)}")
        kind = schema.field(self._field).type
        is_list = pa.types.is_list(kind) and pa.types.is_string(kind.value_type)
        if not is_list and not pa.types.is_string(kind):
            raise ValueError(
                f"field {self._field!r} is {kind}: expected a string or a list of them"
            )

    @staticmethod
    def required_fields(config: str) -> Sequence[str]:
        """Requests the label field."""
        return (_parsed(config)[0],)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.filter(self._is_visible(batch.column(self._field)))

    def _is_visible(self, labels: pa.Array) -> pa.Array:
        if pa.types.is_string(labels.type):
            labels = pc.split_pattern(labels, ",")
        each = pc.utf8_trim_whitespace(pc.list_flatten(labels))
        rows = pc.list_parent_indices(labels)
        is_label = pc.not_equal(each, "")
        is_held = pc.is_in(each, pa.array(sorted(self._held), pa.string()))
        refused = rows.filter(pc.and_(is_label, pc.invert(is_held)))
        is_refused = pc.is_in(pa.arange(0, len(labels)), refused)
        return pc.and_(labels.is_valid(), pc.invert(is_refused))


def _parsed(config: str) -> tuple[str, frozenset[str]]:
    cells = next(csv.reader([config], skipinitialspace=True), [])
    field, *labels = [cell.strip() for cell in cells] or [""]
    if not field:
        raise ValueError(f"config {config!r} is not field,label,label,...")
    return field, frozenset(label for label in labels if label)
