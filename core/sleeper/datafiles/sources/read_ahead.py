"""Iterators whose items other threads produce before they are requested."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
S = TypeVar("S")
_END: Any = object()


def read_ahead(items: Iterator[T], threads: int) -> Generator[T]:
    """Yields the items. With several threads, another one produces the next item meanwhile."""
    if threads == 1:
        yield from items
        return
    with ThreadPoolExecutor(1, "read-ahead") as thread:
        following = thread.submit(next, items, _END)
        while (item := following.result()) is not _END:
            following = thread.submit(next, items, _END)
            yield item


def map_ahead(function: Callable[[T], S], items: Iterable[T], threads: int) -> Generator[S]:
    """Yields the results of the function for the items, in their order.

    With several threads, each works on one item, and one more result waits.
    """
    if threads == 1:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(threads, "map-ahead")
    results: deque[Future[S]] = deque()
    try:
        for item in items:
            results.append(pool.submit(function, item))
            if len(results) > threads:
                yield results.popleft().result()
        while results:
            yield results.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
