"""Failures of commands: one line on standard error, and an exit status."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer
from typer.core import TyperGroup

from sleeper.errors import SleeperError
from sleeper.query.printable import printable

DEBUG_VARIABLE = "SLEEPER_DEBUG"

_FAILED = 1
_INTERRUPTED = 130  # the status that shells report for SIGINT


class Commands(TyperGroup):
    """The root command; reports failures of all commands."""

    def invoke(self, ctx: Any) -> Any:
        _log_to_standard_error()
        with report_failures():
            result = super().invoke(ctx)
            sys.stdout.flush()
        return result


@contextmanager
def report_failures() -> Iterator[None]:
    """Reports a failure in one line and exits; SLEEPER_DEBUG=1 raises it instead.

    A closed pipe of a reader such as `head` is not a failure.
    """
    try:
        yield
    except BrokenPipeError:
        _discard_output()
        raise typer.Exit from None
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise typer.Exit(_INTERRUPTED) from None
    except Exception as error:
        # typer reports its exits and usage errors.
        if isinstance(error, typer.Abort) or hasattr(error, "exit_code"):
            raise
        if _is_debugging():
            raise
        sys.stderr.write(f"error: {printable(_describe(error))}\n")
        raise typer.Exit(_FAILED) from None


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror.lower()}"
    text = " ".join(str(error).split())
    if isinstance(error, SleeperError | OSError):
        return text
    kind = type(error).__name__
    return f"unexpected {kind}: {text} (set {DEBUG_VARIABLE}=1 for a traceback)"


def _discard_output() -> None:
    """Redirects standard output, so that the flush at exit does not fail."""
    with suppress(OSError, ValueError):  # standard output may be no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _log_to_standard_error() -> None:
    if _is_debugging():
        form = "%(levelname)s %(name)s: %(message)s"
        logging.basicConfig(format=form, level=logging.DEBUG)
    else:
        logging.basicConfig(format="warning: %(message)s", level=logging.WARNING)


def _is_debugging() -> bool:
    return os.environ.get(DEBUG_VARIABLE) == "1"
