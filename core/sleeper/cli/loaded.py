"""What commands that load files into a table have in common."""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Protocol

import typer

from sleeper.cli.output import note
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.reports.output import pluralize

JobId = Annotated[
    str | None,
    typer.Option(
        "--job-id", metavar="ID", help="What comes again under the same id changes nothing."
    ),
]


class Loaded(Protocol):
    """What became of a job. `number` is its transaction; `done_before` if it came again."""

    @property
    def job_id(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def files(self) -> int: ...
    @property
    def number(self) -> int | None: ...
    @property
    def done_before(self) -> bool: ...


@contextmanager
def repeatable(context: typer.Context, arguments: Sequence[str], job_id: str) -> Iterator[None]:
    """Prints the command that repeats the job, if it fails or is interrupted.

    Not if the job was refused: then no row of it is in the table, and none would be.
    """
    try:
        yield
    except (InvalidRequestError, NotFoundError):
        raise
    except (Exception, KeyboardInterrupt):
        where = context.obj
        is_default = where is None or where == os.environ.get("SLEEPER_INSTANCE")
        command = [*([] if is_default else ["--instance", where]), *arguments, "--job-id", job_id]
        note(
            f"{arguments[0]} not confirmed; to retry without adding rows twice, run: "
            f"sleeper {shlex.join(command)}"
        )
        raise


def summary(result: Loaded, name: str, seconds: float) -> str:
    """The line that tells of it; `name` is the table's."""
    if result.done_before:
        return (
            f"job {result.job_id} was already committed by transaction {result.number:,}: "
            "nothing changed"
        )
    rate = f", {result.rows / seconds:,.0f} rows/s" if result.rows else ""
    return (
        f"{pluralize(result.rows, 'row')} in {pluralize(result.files, 'file')} into {name}: "
        f"transaction {result.number or 0:,}, {seconds:.1f} s{rate} (job {result.job_id})"
    )
