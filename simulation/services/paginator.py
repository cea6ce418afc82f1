"""Paginators of simulated clients."""

from collections.abc import Callable, Iterator
from typing import Any


class Paginator:
    """Yields the pages of an operation, one request each."""

    def __init__(
        self, operation: Callable[..., dict[str, Any]], start: str, end: str, limit: str
    ) -> None:
        self._operation = operation
        self._start, self._end, self._limit = start, end, limit

    def paginate(self, **request: Any) -> Iterator[dict[str, Any]]:
        """Yields pages. `PaginationConfig` may have a `PageSize`."""
        size = request.pop("PaginationConfig", {}).get("PageSize")
        if size is not None:
            request[self._limit] = size
        while True:
            page = self._operation(**request)
            yield page
            if page.get(self._end) is None:
                return
            request[self._start] = page[self._end]
