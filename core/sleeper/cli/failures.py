"""How the command line fails: one line on standard error, and an exit status."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from sleeper.errors import SleeperError
from sleeper.query.printable import printable

DEBUG_VARIABLE = "SLEEPER_DEBUG"

_FAILED = 1
_INTERRUPTED = 130  # as shells have it for a program ended by Ctrl-C


class Commands(TyperGroup):
    """The root of all commands."""

    def invoke(self, ctx: Any) -> Any:
        _log_to_standard_error()
        with failures_told():
            result = super().invoke(ctx)
            sys.stdout.flush()
        return result


@contextmanager
def failures_told() -> Iterator[None]:
    """Says a failure in one line and exits; with SLEEPER_DEBUG=1 lets it through as it is.

    Whoever reads the output may stop reading whenever they like: that is no failure.
    """
    try:
        yield
    except BrokenPipeError:
        _let_output_go()
        raise typer.Exit from None
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise typer.Exit(_INTERRUPTED) from None
    except Exception as error:
        # Exits, and wrong usage, which typer tells itself.
        if isinstance(error, typer.Abort) or hasattr(error, "exit_code"):
            raise
        if _is_debugging():
            raise
        sys.stderr.write(f"error: {printable(_one_line(error))}\n")
        raise typer.Exit(_FAILED) from None


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror.lower()}"
    text = " ".join(str(error).split())
    if isinstance(error, SleeperError | OSError):
        return text
    kind = type(error).__name__
    return f"unexpected {kind}: {text} (set {DEBUG_VARIABLE}=1 for a traceback)"


def _let_output_go() -> None:
    """What is still buffered has nowhere to go, and must not be said at exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):  # not a real file
        pass


def _log_to_standard_error() -> None:
    if _is_debugging():
        form = "%(levelname)s %(name)s: %(message)s"
        logging.basicConfig(format=form, level=logging.DEBUG)
    else:
        logging.basicConfig(format="warning: %(message)s", level=logging.WARNING)


def _is_debugging() -> bool:
    return os.environ.get(DEBUG_VARIABLE) == "1"
