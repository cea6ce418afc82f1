"""Paths into JSON documents.

A *step* is the name of a member, or the index of an element, which counts from the end if it is
negative. The text of a path is `$` and its steps: `.name`, `."any name"` with the escapes of JSON,
or `[index]`.
"""

import json
import re
from functools import lru_cache

from sleeper.errors import InvalidRequestError

Step = str | int

_STEP = re.compile(
    r'\.(?P<name>[^.\[\]"\s]++)|\.(?P<quoted>"(?:[^"\\]|\\.)*+")|\[(?P<index>-?\d{1,18})\]'
)
_IS_PATH = re.compile(r"\$(?:[.\[]|\Z)")
_CACHED_LENGTH_MAX = 1000
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_step(text: str) -> tuple[Step, ...]:
    """Returns the steps of a text: a path if it is `$` or begins with `$.` or `$[`, else a name."""
    return parse_path(text) if _IS_PATH.match(text) else (text,)


def parse_path(text: str) -> tuple[Step, ...]:
    """Returns the steps of the text of a path. InvalidRequestError if it is not valid."""
    # Long ones would fill the memory that the cache keeps.
    return (_parse_cached if len(text) <= _CACHED_LENGTH_MAX else _parse)(text)


def _parse(text: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    position = 1
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            raise InvalidRequestError(
                f"JSON path {text[:200]!r}: unexpected {text[position : position + 20]!r} "
                '(expected .name, ."name" or [index])'
            )
        name, quoted, index = match["name"], match["quoted"], match["index"]
        steps.append(int(index) if index else name if quoted is None else _unquote(quoted))
        position = match.end()
    return tuple(steps)


_parse_cached = lru_cache(maxsize=256)(_parse)


def _unquote(quoted: str) -> str:
    try:
        name: str = json.loads(quoted)
    except ValueError as error:
        raise InvalidRequestError(f"JSON path: name {quoted[:200]}: {error}") from error
    return name


def format_path(steps: tuple[Step, ...]) -> str:
    """Returns the text that `parse_path` reads."""
    return "$" + "".join(_format_step(each) for each in steps)


def _format_step(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if _PLAIN_NAME.fullmatch(step):
        return f".{step}"
    return "." + json.dumps(step, ensure_ascii=False)
