"""A least recently used cache of limited bytes."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class BoundedCache(Generic[T]):
    """A cache of values by name. Evicts the least recently used ones. Safe for threads."""

    def __init__(self, bytes_max: int, bytes_of: Callable[[T], int]) -> None:
        self._bytes_max = bytes_max
        self._bytes_of = bytes_of
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, T] = OrderedDict()
        self.bytes = 0

    def __contains__(self, name: Hashable) -> bool:
        return name in self._kept

    def get(self, name: Hashable, load: Callable[[], T]) -> T:
        """Returns the cached or loaded value. Does not cache failures."""
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name]
        loaded = load()
        with self._lock:
            if name not in self._kept:
                self._kept[name] = loaded
                self.bytes += self._bytes_of(loaded)
            while self.bytes > self._bytes_max:
                _, dropped = self._kept.popitem(last=False)
                self.bytes -= self._bytes_of(dropped)
        return loaded
