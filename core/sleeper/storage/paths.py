"""Paths of objects, relative to a root."""

import re

from sleeper.errors import InvalidRequestError

_CONTROL = re.compile(r"[\0-\x1f\x7f]")


def check_path(path: str) -> str:
    """Returns the path. InvalidRequestError if it leaves its root or has control characters."""
    # Lookups check the path of each file, and most need no pattern.
    if ".." not in path and path[:1] != "/" and path.isprintable():
        return path
    if path[:1] == "/" or ".." in path.split("/") or _CONTROL.search(path):
        raise InvalidRequestError(
            f"invalid path {path[:200]!r} (expected a relative one without '..' and control "
            "characters)"
        )
    return path
