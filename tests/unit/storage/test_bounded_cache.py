"""Eviction and failures of the bounded cache."""

import pytest

from sleeper.storage.bounded_cache import BoundedCache


def test_least_recently_used_values_are_evicted() -> None:
    cache, loads = BoundedCache[bytes](10, len), []

    def get(name: str) -> None:
        cache.get(name, lambda: loads.append(name) or b"1234")

    for name in "abacab":
        get(name)
    assert loads == ["a", "b", "c", "b"]
    assert cache.bytes == 8


def test_value_larger_than_the_cache_is_not_cached() -> None:
    cache = BoundedCache[bytes](10, len)
    assert cache.get("a", lambda: b"x" * 11) == b"x" * 11
    assert cache.bytes == 0


def test_failure_is_not_cached() -> None:
    cache = BoundedCache[bytes](10, len)
    with pytest.raises(ZeroDivisionError):
        cache.get("a", lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    assert cache.get("a", lambda: b"x") == b"x"
