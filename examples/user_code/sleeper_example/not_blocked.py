"""Removes rows whose field has a value that is a key of another table.

The other table is read from a local copy, which the processes of a machine share.
"""

import atexit
import json
from collections.abc import Iterator, Sequence
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.adjunct import AdjunctStore

_MEMBERS = {"instance", "table", "path", "field"}


class NotBlocked:
    """Config is JSON: `{"instance": ..., "table": "blocked", "path": ..., "field": "account"}`.

    `instance` and `table` name the other table, and `path` is the folder of copies on local disk.
    """

    def __init__(
        self,
        schema: pa.Schema,
        row_key: Sequence[str],  # noqa: ARG002
        sort_key: Sequence[str],  # noqa: ARG002
        config: str,
    ) -> None:
        self._config = config
        self._field = _parse(config)["field"]
        if self._field not in schema.names:
            raise ValueError(f"field {self._field!r} is none of {', '.join(schema.names)}")

    @staticmethod
    def required_fields(config: str) -> Sequence[str]:
        """Returns the field whose values are looked up."""
        return (_parse(config)["field"],)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Opened here, because the check of a property makes an object too.
        store = _open_store(self._config)
        store.refresh()
        for batch in batches:
            column = batch.column(self._field)
            values = pc.unique(column).drop_null()
            is_blocked = [value is not None for value in store.get_many(values.to_pylist())]
            blocked = values.filter(pa.array(is_blocked, pa.bool_()))
            yield batch.filter(pc.invert(pc.is_in(column, value_set=blocked)))


def _parse(config: str) -> dict[str, str]:
    settings = json.loads(config)
    if not isinstance(settings, dict) or settings.keys() != _MEMBERS:
        raise ValueError(f"config {config!r} (expected the members {', '.join(sorted(_MEMBERS))})")
    return settings


@cache
def _open_store(config: str) -> AdjunctStore:
    """Opens the copy once per process. It follows the table until the process ends."""
    settings = _parse(config)
    store = AdjunctStore.open(
        settings["table"],
        f"table:{settings['table']}",
        settings["path"],
        instance=settings["instance"],
        broadcast=True,
    )
    atexit.register(store.close)
    return store
