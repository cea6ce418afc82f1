"""Envelopes: messages of an input with their place in it."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message of a partition of a stream, with its key and value decoded.

    `offset` is its place in the partition, and `next_offset` the position after it, which a store
    saves. With `is_end_of_dataset`, it is the marker that ends a dataset, and `value` its name.
    """

    stream: str
    partition: str
    offset: str
    next_offset: str
    key: Any
    value: Any
    is_end_of_dataset: bool = False

    def __str__(self) -> str:
        return f"{self.stream}, partition {self.partition}, offset {self.offset}"
