"""Objects as a listing has them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object that is there. The path is relative to the data root."""

    path: str
    bytes: int
    modified_ms: int
