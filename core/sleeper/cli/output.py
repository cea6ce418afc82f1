"""Output of commands.

Listings and rows go to standard output; notes, progress and errors go to standard error. Progress
is shown on a terminal only. A failure is one line and an exit status.
"""

import inspect
import json
import logging
import os
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import typer
from typer.core import TyperGroup

from sleeper.cli.arguments import OutputKind, OutputOption, use_instance
from sleeper.errors import SleeperError
from sleeper.log_lines import log_lines
from sleeper.query.printable import printable
from sleeper.storage.disk import replacing_file, write_error

if TYPE_CHECKING:
    from sleeper.ingest.run import IngestProgress
    from sleeper.instance import Instance
    from sleeper.reports.output import Listing


def note(text: str) -> None:
    """Writes a line to standard error, in order with standard output."""
    sys.stdout.flush()
    sys.stderr.write(f"{printable(text)}\n")
    sys.stderr.flush()


def warn(warnings: Iterable[str]) -> None:
    """Writes each warning to standard error."""
    for warning in warnings:
        note(f"warning: {warning}")


def print_listings(listings: Iterable["Listing"], output: OutputKind) -> None:
    """Prints listings: text with an empty line between them, or JSON lines."""
    from sleeper.reports.output import OUTPUTS

    for number, listing in enumerate(listings):
        if output is OutputKind.TEXT and number:
            sys.stdout.write("\n")
        OUTPUTS[output.value](listing, sys.stdout)
        if output is OutputKind.JSON and listing.note:
            note(f"note: {listing.note}")


def print_json(members: Mapping[str, object]) -> None:
    """Prints the result of a command as one line of JSON."""
    sys.stdout.write(f"{json.dumps(members, ensure_ascii=False)}\n")


def instance_command(work: Callable[..., None]) -> Callable[..., None]:
    """Turns a function of an instance into a command that opens and closes the instance.

    The command has the function's arguments, except the instance.
    """

    @wraps(work)
    def command(context: typer.Context, **arguments: Any) -> None:
        with use_instance(context) as instance:
            work(instance, **arguments)

    _, *parameters = inspect.signature(work).parameters.values()
    context = inspect.Parameter("context", _KEYWORD, annotation=typer.Context)
    set_parameters(command, [context, *parameters])
    return command


def listing_command(report: Callable[..., Iterable["Listing"]]) -> Callable[..., None]:
    """Turns a report on an instance into a command that prints the listings.

    The command has the report's arguments, except the instance, and `--output`.
    """

    @wraps(report)
    def command(instance: "Instance", output: OutputKind, **arguments: Any) -> None:
        print_listings(report(instance, **arguments), output)

    output = inspect.Parameter("output", _KEYWORD, default=OutputKind.TEXT, annotation=OutputOption)
    set_parameters(command, [*inspect.signature(report).parameters.values(), output])
    return instance_command(command)


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def set_parameters(command: Callable[..., None], parameters: Iterable[inspect.Parameter]) -> None:
    """Sets the signature, from which typer derives the command line."""
    signature = inspect.Signature([p.replace(kind=_KEYWORD) for p in parameters])
    command.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    command.__signature__ = signature  # type: ignore[attr-defined]


class RowFormat(StrEnum):
    """The formats of rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    ARROW = "arrow"
    PARQUET = "parquet"

    @classmethod
    def choose(cls, row_format: Self | None, file: Path | None) -> Self:
        """Returns the given format, or that of the file's suffix, or TABLE if it has none."""
        if row_format is not None:
            return row_format
        suffix = file.suffix.lower() if file is not None else ""
        if suffix and suffix not in _FORMATS:
            raise typer.BadParameter(
                f"--output {file}: unknown ending {suffix} (expected {', '.join(_FORMATS)}, or the "
                "format with --format)"
            )
        return cls(_FORMATS.get(suffix, "table"))


_FORMATS = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".parquet": "parquet",
    ".txt": "table",
}


@contextmanager
def open_row_sink(row_format: RowFormat, file: Path | None) -> Iterator[BinaryIO]:
    """Opens the output of rows; a file gets its name when it is complete."""
    if file is None:
        if row_format in (RowFormat.PARQUET, RowFormat.ARROW) and sys.stdout.isatty():
            raise typer.BadParameter(
                f"cannot write {row_format.title()} to a terminal: use --output FILE or a pipe"
            )
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    elif file.exists() and not file.is_file():  # a pipe or a device
        with file.open("wb") as sink:
            yield sink
    else:
        part = file.with_name(f".{file.name}.{uuid.uuid4().hex[:8]}.part")
        try:
            with replacing_file(file, part), part.open("wb") as sink:
                yield sink
        except OSError as error:
            raise write_error(file, error) from error


DEBUG_VARIABLE = "SLEEPER_DEBUG"

_OPTIONS_OF_OTHERS = {
    "--where": "conditions on values: sleeper sql 'SELECT ... FROM TABLE WHERE ...'",
}
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
            _explain_option(error)
            raise
        if _is_debugging():
            raise
        sys.stderr.write(f"error: {printable(_describe(error))}\n")
        raise typer.Exit(_FAILED) from None


def _explain_option(error: Any) -> None:
    """Replaces the suggestions for an unknown option if another command does what it asks for."""
    hint = _OPTIONS_OF_OTHERS.get(getattr(error, "option_name", ""))
    if hint is not None:
        error.possibilities = None
        error.message += f" ({hint})"


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
        log_lines("warning: %(message)s")


def _is_debugging() -> bool:
    return os.environ.get(DEBUG_VARIABLE) == "1"


@contextmanager
def show_ingest(description: str) -> Iterator["IngestProgress"]:
    """Shows the rows read, then the rows written of that total."""
    from sleeper.ingest.run import IngestProgress

    if not sys.stderr.isatty():
        yield IngestProgress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    # While rows are read, their number is not known, and a bar would seem to stand full.
    reading = SpinnerColumn()
    writing = BarColumn()
    bar = Progress(
        TextColumn("{task.description}"),
        reading,
        TextColumn("{task.fields[rows]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(f"{description}: reading", total=None, rows="")
        rows_read = rows_written = 0

        def count_read(rows: int) -> None:
            nonlocal rows_read
            rows_read += rows
            bar.update(task, rows=f"{rows_read:,} rows")

        def count_written(rows: int) -> None:
            nonlocal rows_written
            rows_written += rows
            bar.columns = tuple(writing if each is reading else each for each in bar.columns)
            bar.update(
                task,
                description=f"{description}: writing",
                total=rows_read,
                completed=rows_written,
                rows=format_progress(rows_written, rows_read),
            )

        yield IngestProgress(count_read, count_written)


def format_progress(done: int, total: int) -> str:
    """Returns the number of rows done, of the known total, and the percentage."""
    return f"{done:,} of {total:,} rows, {100 * done // max(total, 1)} %"


@contextmanager
def show_stages(description: str) -> Iterator[Callable[[str], None]]:
    """Returns a listener of stages of an operation without a total."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status(description) as status:
        yield lambda stage: status.update(f"{description}: {stage}")


@contextmanager
def show_bytes(description: str) -> Iterator[Callable[[int, int], None]]:
    """Returns a listener of the number of bytes done and the total."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=max(done, total))


@contextmanager
def show_rows(description: str) -> Iterator[Callable[[int, int], None]]:
    """Returns a listener of the number of rows done and the total."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[rows]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(description, total=None, rows="")

        def update(done: int, total: int) -> None:
            total = max(done, total)
            bar.update(task, completed=done, total=total, rows=format_progress(done, total))

        yield update
