"""`sleeper run` and `sleeper serve`: commands that run until they are interrupted."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper import DISTRIBUTION
from sleeper.cli.arguments import OutputKind, OutputOption
from sleeper.cli.output import instance_command, note, print_listings
from sleeper.errors import InvalidRequestError
from sleeper.jobs.process import SIGTERM_SECONDS_MAX, interrupted_by_sigterm
from sleeper.query.printable import printable
from sleeper.reports.output import pluralize
from sleeper.workers.trace_exporter import exported_spans

if TYPE_CHECKING:
    from sleeper.instance import Instance
    from sleeper.workers.run_status import JobReport, Listener, OnJob, RunStatus

_SECONDS_BETWEEN_LINES = 5.0


@instance_command
def run(
    instance: "Instance",
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Stop when no work is left.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            metavar="N",
            help="Number of worker processes. Default: property sleeper.local.workers.",
        ),
    ] = None,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Run the background work of a local instance.

    Runs queued jobs, compaction, splitting and garbage collection until it is interrupted. It
    can be stopped or killed at any time; the next run continues. An AWS instance needs no
    `sleeper run`. Prints a line per job, and a summary at the end, all to standard error; with
    --output json, the summary is a line of JSON on standard output. With --until-idle, the exit
    status is 1 if a job failed or was rejected.

    \b
    Examples:
      sleeper run
      sleeper run --until-idle --workers 2
      sleeper run --until-idle --output json | jq .dead_letters
    """
    from sleeper.workers.run_report import describe_run, summarize_run
    from sleeper.workers.runner import run_instance

    latest: list[RunStatus] = []
    try:
        with _until_stopped(until_idle), _show_status(latest, until_idle) as (listener, on_job):
            run_instance(instance, until_idle, workers, listener, on_job)
    finally:
        if latest and output is OutputKind.JSON:
            print_listings([describe_run(latest[-1])], output)
        elif latest:
            note(summarize_run(latest[-1]))
    if until_idle and latest and latest[-1].has_failed:
        raise typer.Exit(1)


@instance_command
def serve(
    instance: "Instance",
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, metavar="N", help="Port; 0 for any free one.")
    ] = 8080,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse to change tables.")
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="File with the tokens of callers."),
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Print a line for each request to stderr.")
    ] = False,
) -> None:
    """Serve queries and changes over HTTP, and queries over WebSocket at /live.

    Listens on the loopback address unless --host is given. Another address requires a bearer
    token in SLEEPER_SERVE_TOKEN or --token-file, and should be behind a TLS proxy. Without one,
    reads need no token, and changes need the new token in the URL that is printed once. A token
    file has one token, or lines of `read`, `write` or `admin` and a token. The console at / shows
    tables, jobs and queues, and runs queries; /openapi.json describes the API, and /health and
    /metrics are for monitoring.

    \b
    Examples:
      sleeper serve
      sleeper serve --read-only --port 8081
      SLEEPER_SERVE_TOKEN=... sleeper serve --host 0.0.0.0 --port 80
    """
    try:
        from sleeper.serve import server
        from sleeper.serve.tokens import TOKEN_VARIABLE, Right, make_tokens, read_tokens
    except ModuleNotFoundError as error:
        raise InvalidRequestError(
            f"sleeper serve needs {error.name}: pip install '{DISTRIBUTION}[serve]'"
        ) from error
    token = os.environ.pop(TOKEN_VARIABLE, None)
    rights = {token: Right.ADMIN} if token else {}
    if token_file is not None:
        rights = read_tokens(token_file)
    tokens, new_token = make_tokens(host, rights, read_only or instance.read_only)

    def show(url: str) -> None:
        note(f"listening on {url}")
        if new_token is not None:
            note(f"changes need the token of this URL: {url}/#token={new_token}")

    with _until_stopped():
        log = sys.stderr if access_log else None
        server.serve(instance, host, port, tokens, show, read_only, log)


@contextmanager
def _until_stopped(is_incomplete: bool = False) -> Iterator[None]:
    """Exports spans until SIGTERM or Ctrl-C, which is an error if work is incomplete."""
    try:
        with interrupted_by_sigterm(SIGTERM_SECONDS_MAX), exported_spans():
            yield
    except KeyboardInterrupt:
        if is_incomplete:
            raise
        note("stopped")


@contextmanager
def _show_status(latest: "list[RunStatus]", repeats: bool) -> "Iterator[tuple[Listener, OnJob]]":
    """Returns a listener that stores the latest status in the list and shows it, and one of jobs.

    Output is a line per job, and a status line on a terminal, else one at most every five seconds,
    if it has changed or `repeats`.
    """
    from sleeper.workers.run_report import describe_job

    if sys.stderr.isatty():
        from rich.console import Console

        console = Console(stderr=True)
        with console.status("starting") as line:

            def update(status: "RunStatus") -> None:
                latest[:] = [status]
                line.update(_describe_status(status))

            def show(report: "JobReport") -> None:
                text = printable(describe_job(report))
                console.print(text, markup=False, highlight=False, soft_wrap=True)

            yield update, show
    else:
        last_seconds, last_text = 0.0, ""

        def write(status: "RunStatus") -> None:
            nonlocal last_seconds, last_text
            latest[:] = [status]
            text = _describe_status(status)
            is_new = repeats or text != last_text
            if is_new and status.seconds - last_seconds >= _SECONDS_BETWEEN_LINES:
                last_seconds, last_text = status.seconds, text
                note(text)

        yield write, lambda report: note(describe_job(report))


def _describe_status(status: "RunStatus") -> str:
    queues = [
        f"{queue} {status.running.get(queue, 0):,} running, {waiting:,} waiting"
        + (f" ({delayed:,} for a later time)" if (delayed := status.delayed.get(queue)) else "")
        for queue, waiting in status.waiting.items()
        if waiting or status.running.get(queue)
    ]
    if status.exports:
        queues.append(f"{pluralize(status.exports, 'export')} pending")
    return "; ".join(queues) or "idle"
