"""Options of exporters."""

import re
from collections.abc import Collection
from pathlib import Path

from sleeper.errors import InvalidRequestError, did_you_mean
from sleeper.export_queue.definition import ExportQueue

_FLAGS = {"true": True, "false": False}


def check_options(queue: ExportQueue, names: Collection[str], prefix: str | None = None) -> None:
    """Raises InvalidRequestError if an option has another name, which may begin with the prefix."""
    for name in queue.exporter.options:
        if name not in names and not (prefix and name.startswith(prefix)):
            expected = ", ".join([*sorted(names), *([f"{prefix}NAME"] if prefix else [])])
            raise InvalidRequestError(
                f"{exporter_name(queue)}: unknown option {name!r}{did_you_mean(name, names)} "
                f"(expected {f'one of: {expected}' if expected else 'none'})"
            )


def read_flag(queue: ExportQueue, name: str, default: bool = False) -> bool:
    """Returns the value of an option that is `true` or `false`."""
    text = queue.exporter.options.get(name)
    if text is None:
        return default
    if text not in _FLAGS:
        raise InvalidRequestError(
            f"{exporter_name(queue)}: option {name} is {text!r} (expected true or false)"
        )
    return _FLAGS[text]


def read_path(queue: ExportQueue, name: str) -> str | None:
    """Returns the path of an option that names a file on the machine of the exporter."""
    text = queue.exporter.options.get(name)
    return None if text is None else str(Path(text).expanduser())


def check_text(queue: ExportQueue, name: str, text: str, pattern: str, expected: str) -> str:
    """Returns the text. InvalidRequestError if it does not match the pattern."""
    if re.fullmatch(pattern, text) is None:
        raise InvalidRequestError(
            f"{exporter_name(queue)}: {name} {text[:100]!r} is invalid (expected {expected})"
        )
    return text


def exporter_name(queue: ExportQueue) -> str:
    """Returns the name of the exporter for errors, without its target, which may be secret."""
    return f"export queue {queue.name!r}: exporter {queue.exporter.kind}"
