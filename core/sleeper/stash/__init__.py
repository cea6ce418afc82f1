"""Stash: a copy of tables as gzipped JSON lines or Parquet in a folder or bucket (docs/stash.md).

A stash *root* is a folder below a *destination*, named after its start. It has a directory for each
table and is complete when it has `_SUCCESS`. Each table is copied at one *version*, a transaction
number. A *piece* is one file: a leaf, or a part of a large one. A *task* is a group of adjacent
small pieces, or one larger piece. Readers see a piece as a *split*.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sleeper.stash.reader import LockedStash, Stash, StashRows

__all__ = ["LockedStash", "Stash", "StashRows"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from sleeper.stash import reader

        return getattr(reader, name)
    raise AttributeError(f"module 'sleeper.stash' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
