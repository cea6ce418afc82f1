"""Progress of long operations: shown on a terminal only."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sleeper.ingest.run import IngestProgress


@contextmanager
def show_ingest(description: str) -> Iterator["IngestProgress"]:
    """Shows the rows read, then the rows written of that total."""
    from sleeper.ingest.run import IngestProgress

    if not sys.stderr.isatty():
        yield IngestProgress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
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
            bar.update(
                task,
                description=f"{description}: writing",
                total=rows_read,
                completed=rows_written,
                rows=f"{rows_written:,} of {rows_read:,} rows",
            )

        yield IngestProgress(count_read, count_written)


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
def show_rows(description: str) -> Iterator[Callable[[int, int], None]]:
    """Returns a listener of the number of rows done and the total."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=max(done, total))
