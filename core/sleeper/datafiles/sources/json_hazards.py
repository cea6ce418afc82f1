"""Lines of JSON that would end the process in Arrow's parser.

The parser follows nested values by recursion, also in members that it ignores: about 80,000 levels
exceed a stack of 8 MiB. A `null` that precedes all objects is written through a null pointer
(apache/arrow#47409).
"""

import codecs
import re
from collections.abc import Iterable

import numpy as np

_LEVELS_MAX = 10_000
# A line of more levels contains a whole window.
_WINDOW_BYTES = _LEVELS_MAX // 2
_PART_WINDOWS = 16
_LINE_FEED = ord("\n")
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_OBJECT_START = re.compile(rb"\s*(?:%b)?\s*\{" % codecs.BOM_UTF8)


def check_objects(lines: Iterable[bytes]) -> None:
    """Raises ValueError if a line does not begin as an object."""
    if not all(map(_OBJECT_START.match, lines)):
        raise ValueError("not an object")


def check_depth(lines: bytes) -> None:
    """Raises ValueError if a value is nested too deep. Most lines are too short for that."""
    if not _has_long_line(lines):
        return
    structure = np.frombuffer(_TEXT.sub(b"", lines), np.uint8)
    opens = (structure == ord("[")) | (structure == ord("{"))
    closes = (structure == ord("]")) | (structure == ord("}"))
    levels = np.cumsum(opens.astype(np.int8) - closes.astype(np.int8), dtype=np.int64)
    if levels.max(initial=0) > _LEVELS_MAX:
        raise ValueError(f"nested deeper than {_LEVELS_MAX} levels")


def _has_long_line(lines: bytes) -> bool:
    """Whether a window has no line feed. Results for parts stay in the processor's cache."""
    count = len(lines) // _WINDOW_BYTES
    windows = np.frombuffer(lines, np.uint8, count * _WINDOW_BYTES).reshape(count, _WINDOW_BYTES)
    return any(
        not (windows[start : start + _PART_WINDOWS] == _LINE_FEED).any(axis=1).all()
        for start in range(0, count, _PART_WINDOWS)
    )
