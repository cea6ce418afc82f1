"""`sleeper ingest`, and the parts that it shares with other loads of files."""

import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from sleeper.cli.arguments import OutputKind, OutputOption, TableName, use_instance
from sleeper.cli.file_options import (
    ColumnsOption,
    DelimiterOption,
    EncodingOption,
    FormatOption,
    HeaderOption,
    NestedOption,
    format_options,
    make_options,
)
from sleeper.cli.output import note, print_json, show_ingest
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.jobs.process import interrupted_by_sigterm
from sleeper.reports.output import pluralize
from sleeper.storage.source_options import DEFAULT_OPTIONS, STANDARD_INPUT, SourceOptions

if TYPE_CHECKING:
    from sleeper.ingest.run import IngestResult
    from sleeper.instance import Instance

JobId = Annotated[
    str | None,
    typer.Option(
        "--job-id", metavar="ID", help="Id of the job. A repeated job adds no rows. Default: new."
    ),
]


class LoadResult(Protocol):
    """The result of a job that adds rows, committed in transaction `number`.

    `done_before` if an earlier run of the job had committed.
    """

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
def suggest_retry(
    context: typer.Context,
    arguments: Sequence[str],
    job_id: str,
    option: str = "--job-id",
    job: str | None = None,
) -> Iterator[None]:
    """Prints the command that repeats the job if it fails, unless it was rejected.

    `job` describes it; the default is the name of the command.
    """
    try:
        yield
    except (InvalidRequestError, NotFoundError):
        raise
    except (Exception, KeyboardInterrupt):
        where = context.obj
        is_default = where is None or where == os.environ.get("SLEEPER_INSTANCE")
        command = [*([] if is_default else ["--instance", where]), *arguments, option, job_id]
        note(
            f"{job or arguments[0]} not confirmed; to retry without adding rows twice, run: "
            f"sleeper {shlex.join(command)}"
        )
        raise


def summarize_load(result: LoadResult, table: str, seconds: float) -> str:
    """Returns one line on the result of a job."""
    if result.done_before:
        return (
            f"job {result.job_id} was already committed by transaction {result.number:,}: "
            "nothing changed"
        )
    rate = f", {result.rows / seconds:,.0f} rows/s" if result.rows else ""
    return (
        f"{pluralize(result.rows, 'row')} in {pluralize(result.files, 'file')} into {table}: "
        f"transaction {result.number or 0:,}, {seconds:.1f} s{rate} (job {result.job_id})"
    )


def ingest(
    context: typer.Context,
    name: TableName,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Parquet, CSV or JSON lines files, quoted patterns, directories, or "
            "s3://bucket/key if the instance can read the bucket. A directory includes all such "
            "files below it, an S3 prefix all Parquet files below it. `-` is standard input, and "
            "requires --format.",
        ),
    ],
    job_id: JobId = None,
    submit: Annotated[
        bool,
        typer.Option(
            "--submit",
            help="Send the job to the queue and print its id. `sleeper run` runs it, or a task of "
            "an AWS instance, which reads only files in S3.",
        ),
    ] = False,
    batch: Annotated[
        bool,
        typer.Option(
            "--batch",
            help="Submit the files to the ingest batcher, which groups files into jobs according "
            "to the table's properties.",
        ),
    ] = False,
    rejects: Annotated[
        Path | None,
        typer.Option(
            "--rejects",
            metavar="FILE",
            help="Write invalid rows to this file, as JSON lines, and ingest the others. By "
            "default, one invalid row rejects the job. A job without a valid row is rejected.",
        ),
    ] = None,
    rejects_max: Annotated[
        int | None,
        typer.Option(
            "--rejects-max",
            min=0,
            metavar="N",
            help="Reject the job if more than N rows are invalid. Requires --rejects.",
        ),
    ] = None,
    op_column: Annotated[
        str | None,
        typer.Option(
            "--op-column",
            metavar="NAME",
            help="Column with the operation of each row: insert, update, upsert or delete, or c, "
            "r, u or d. Requires a table with sleeper.table.rows=latest.",
        ),
    ] = None,
    file_format: FormatOption = None,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    header: HeaderOption = None,
    columns: ColumnsOption = None,
    nested: NestedOption = None,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Add the rows of files to a table.

    All rows are added in one commit. Columns may be in any order, and nullable ones may be missing.
    Values are cast to the table's types if the cast is exact. Delimiter, encoding and header of CSV
    are detected. A table with the property sleeper.table.rows=latest keeps the last row of each
    key, in the order of the files. In a table with sleeper.table.type=snapshot, the rows replace
    all rows of the table.

    \b
    Examples:
      sleeper ingest flights 2013-01.parquet 2013-02.parquet
      sleeper ingest rides 'data/*.csv' --delimiter ';' --encoding latin-1
      sleeper ingest rides - --format csv --no-header --columns city,day < rides.txt
      sleeper ingest flights /data/flights --job-id year-2013
      sleeper ingest weather weather.csv --rejects rejected.jsonl --rejects-max 100
      sleeper ingest flights 2013-03.parquet --submit
      sleeper ingest flights s3://arrivals/2013/ --submit
      sleeper ingest flights 2013-03-01T10.parquet --batch
      sleeper ingest customers changes.jsonl --op-column op
      sleeper ingest flights 2013-04.parquet --output json | jq .transaction
    """
    _check_combination(submit, batch, rejects, rejects_max)
    if batch and (job_id is not None or op_column is not None):
        raise typer.BadParameter("--batch cannot be used with --job-id or --op-column")
    options = make_options(file_format, delimiter, encoding, header, columns, nested)
    if batch and options != DEFAULT_OPTIONS:
        raise typer.BadParameter("--batch finds how files are read (expected no options of files)")
    if STANDARD_INPUT in files and (submit or batch or files.count(STANDARD_INPUT) > 1):
        raise typer.BadParameter("- is read once, and not with --submit or --batch")
    with use_instance(context) as instance:
        if batch:
            from sleeper.ingest_batcher.service import submit_to_batcher

            count = submit_to_batcher(instance, name, files)
            note(f"submitted {pluralize(count, 'file')} to the ingest batcher")
            _print_job(output, {"table": name, "files": count})
            return
        from sleeper.jobs.ingest_job import new_job_id

        job_id = job_id or new_job_id()
        operations = [] if op_column is None else ["--op-column", op_column]
        arguments = ["ingest", name, *files, *operations, *format_options(options)]
        if submit:
            from sleeper.ingest.service import submit_ingest

            with suggest_retry(context, [*arguments, "--submit"], job_id):
                submitted = submit_ingest(instance, name, files, job_id, op_column, options)
            _print_job(output, {"table": name, "job_id": submitted}, submitted)
            return
        if rejects is not None:
            arguments += ["--rejects", str(rejects)]
        if rejects_max is not None:
            arguments += ["--rejects-max", str(rejects_max)]
        retry = suggest_retry(context, arguments, job_id)
        _ingest_now(
            instance, name, files, job_id, rejects, rejects_max, op_column, options, retry, output
        )


def _check_combination(
    submit: bool, batch: bool, rejects: Path | None, rejects_max: int | None
) -> None:
    """Raises BadParameter for options that exclude or require each other."""
    if submit and batch:
        raise typer.BadParameter("--batch cannot be used with --submit")
    if rejects is not None and (submit or batch):
        raise typer.BadParameter("--rejects cannot be used with --submit or --batch")
    if rejects_max is not None and rejects is None:
        raise typer.BadParameter("--rejects-max requires --rejects")


def _print_job(output: OutputKind, members: Mapping[str, object], text: str = "") -> None:
    if output is OutputKind.JSON:
        print_json(members)
    elif text:
        typer.echo(text)


def _ingest_now(
    instance: "Instance",
    name: str,
    files: list[str],
    job_id: str,
    rejects: Path | None,
    rejects_max: int | None,
    op_column: str | None,
    options: SourceOptions,
    retry: AbstractContextManager[None],
    output: OutputKind,
) -> None:
    instance.table(name)  # fails before the engine takes a second to load
    from sleeper.datafiles.sources.rejects import Rejects
    from sleeper.ingest.service import ingest_paths
    from sleeper.ingest.standard_input import stage_standard_input

    start = time.monotonic()
    staged: AbstractContextManager[Path | None] = nullcontext()
    if STANDARD_INPUT in files:
        staged = stage_standard_input(instance, sys.stdin.buffer, options)
    with (
        staged as standard_input,
        rejects.open("a", encoding="utf-8") if rejects is not None else nullcontext() as sink,
        retry,
        interrupted_by_sigterm(),
        show_ingest(f"ingest into {name}") as progress,
    ):
        rejected = Rejects(sink, rejects_max) if sink is not None else None
        result = ingest_paths(
            instance,
            name,
            files,
            job_id,
            rejected,
            progress,
            op_column,
            options,
            standard_input,
        )
    seconds = time.monotonic() - start
    note(summarize_load(result, name, seconds))
    _print_job(output, _describe_load(result, name, seconds))
    if result.rejected:
        note(f"{pluralize(result.rejected, 'row')} rejected: see {rejects}")


def _describe_load(result: "IngestResult", table: str, seconds: float) -> dict[str, object]:
    return {
        "table": table,
        "job_id": result.job_id,
        "transaction": result.number,
        "rows": result.rows,
        "files": result.files,
        "rows_rejected": result.rejected,
        "done_before": result.done_before,
        "seconds": round(seconds, 3),
    }
