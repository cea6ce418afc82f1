"""Planted bugs: one-line mutations of the product, which the checks must find."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plants the bug in the block."""
    assert name is None
    yield
