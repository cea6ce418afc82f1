"""What was used last, up to so many bytes."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BoundedCache(Generic[T]):
    """Keeps values by name; those that were used longest ago make room. Safe for threads."""

    def __init__(self, bytes_max: int, bytes_of: Callable[[T], int]) -> None:
        self._bytes_max = bytes_max
        self._bytes_of = bytes_of
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, T] = OrderedDict()
        self.bytes = 0

    def get(self, name: str, load: Callable[[], T]) -> T:
        """The value of that name, loaded if it is not kept. A failure is not remembered."""
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
