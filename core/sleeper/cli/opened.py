"""The instance that a command works on."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from sleeper.instance import Instance


@contextmanager
def opened(context: typer.Context) -> Iterator["Instance"]:
    """The instance that `--instance` or SLEEPER_INSTANCE names, closed at the end."""
    from sleeper.opening import open_instance

    instance = open_instance(context.obj)
    try:
        yield instance
    finally:
        instance.close()
