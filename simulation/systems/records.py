"""What the workload records of systems, for checks that compare it when the log is known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StoreRead:
    """All keys and values that an adjunct store had at its position, a transaction of a table.

    `values` are mappings from the names of sort and value fields.
    """

    store: str
    table_id: str
    number: int
    values: Mapping[tuple[Any, ...], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class AdapterSource:
    """The rows that an adapter's source has, which never change, by field name."""

    rows: Sequence[Mapping[str, Any]]
