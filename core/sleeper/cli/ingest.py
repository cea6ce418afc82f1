"""`sleeper ingest`: files become rows of a table."""

import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.loaded import JobId, repeatable, summary
from sleeper.cli.opened import opened
from sleeper.cli.output import note
from sleeper.cli.progress import ingest_progress
from sleeper.cli.table import TableName
from sleeper.jobs.process import interrupted_by_sigterm
from sleeper.reports.output import pluralize

if TYPE_CHECKING:
    from sleeper.instance import Instance


def ingest(
    context: typer.Context,
    name: TableName,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Parquet, CSV or JSON lines; a directory stands for all such files below it. "
            "Also s3://bucket/key, where the instance may read the bucket; a prefix stands for "
            "all Parquet files below it.",
        ),
    ],
    job_id: JobId = None,
    submit: Annotated[
        bool,
        typer.Option(
            "--submit",
            help="Send the job to the queue, and print its id: `sleeper run` does it, or a task of "
            "an AWS instance, which reads files in S3 only.",
        ),
    ] = False,
    batch: Annotated[
        bool,
        typer.Option(
            "--batch",
            help="Let the files wait for others: the ingest batcher makes jobs of them, as the "
            "table's properties say.",
        ),
    ] = False,
    rejects: Annotated[
        Path | None,
        typer.Option(
            "--rejects",
            metavar="FILE",
            help="Write rows that do not fit to this file, as JSON lines, and take in the others. "
            "Without it one such row refuses the whole job.",
        ),
    ] = None,
) -> None:
    """Take files into a table, in one commit: all of their rows, or none.

    Columns may come in any order; types are cast where no value changes.

    \b
    Examples:
      sleeper ingest flights 2013-01.parquet 2013-02.parquet
      sleeper ingest flights /data/flights --job-id year-2013
      sleeper ingest weather weather.csv --rejects rejected.jsonl
      sleeper ingest flights 2013-03.parquet --submit
      sleeper ingest flights s3://arrivals/2013/ --submit
      sleeper ingest flights 2013-03-01T10.parquet --batch
    """
    if rejects is not None and (submit or batch):
        raise typer.BadParameter("--rejects works only without --submit and --batch")
    if batch and (submit or job_id is not None):
        raise typer.BadParameter("--batch goes without --submit and --job-id")
    with opened(context) as instance:
        if batch:
            from sleeper.ingest_batcher.service import submit_to_batcher

            count = submit_to_batcher(instance, name, files)
            note(f"submitted {pluralize(count, 'file')} to the ingest batcher")
            return
        from sleeper.jobs.ingest_job import new_job_id

        chosen = job_id or new_job_id()
        arguments = ["ingest", name, *files]
        if submit:
            from sleeper.ingest.service import submit_ingest

            with repeatable(context, [*arguments, "--submit"], chosen):
                typer.echo(submit_ingest(instance, name, files, chosen))
            return
        if rejects is not None:
            arguments += ["--rejects", str(rejects)]
        confirmed = repeatable(context, arguments, chosen)
        _ingest_now(instance, name, files, chosen, rejects, confirmed)


def _ingest_now(
    instance: "Instance",
    name: str,
    files: list[str],
    job_id: str,
    rejects: Path | None,
    confirmed: AbstractContextManager[None],
) -> None:
    instance.table(name)  # before the engine is loaded, which takes a second
    from sleeper.datafiles.sources.files import Rejects
    from sleeper.ingest.service import ingest_paths

    begun = time.monotonic()
    with (
        rejects.open("a", encoding="utf-8") if rejects is not None else nullcontext() as sink,
        confirmed,
        interrupted_by_sigterm(),
        ingest_progress(f"ingest into {name}") as progress,
    ):
        aside = Rejects(sink) if sink is not None else None
        result = ingest_paths(instance, name, files, job_id, aside, progress)
    note(summary(result, name, time.monotonic() - begun))
    if aside is not None and aside.count:
        note(f"{pluralize(aside.count, 'row')} rejected: see {rejects}")
