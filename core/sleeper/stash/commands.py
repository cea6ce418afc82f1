"""`sleeper stash run`, `status`, `cancel` and `recover`: copies of tables as plain files."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import (
    OutputKind,
    OutputOption,
    SparkConf,
    SparkMaster,
    complete_table,
    needs_spark,
    refuse_spark_options,
)
from sleeper.cli.output import instance_command, note, print_listings, show_stages
from sleeper.stash.layout import StashFormat

if TYPE_CHECKING:
    from sleeper.instance import Instance
    from sleeper.stash.record import StashRecord
    from sleeper.stash.run import OnStage, OpenTasks, StashResult

stash = typer.Typer(
    help="Copy tables as gzipped JSON lines or Parquet to a folder or bucket, and read the copies.",
    no_args_is_help=True,
)

Destination = Annotated[
    str,
    typer.Option(
        "--destination",
        metavar="DEST",
        help="Place of the stashes: a folder, s3://bucket/prefix, hdfs://namenode:8020/folder, or "
        "the URL of another file system.",
    ),
]
Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="TABLE",
        help="Table to copy. Repeatable. Default: all tables.",
        autocompletion=complete_table,
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        metavar="PATTERN",
        help="Table to leave out, or a pattern of names such as 'tmp_*'. Repeatable.",
        autocompletion=complete_table,
    ),
]
Atomic = Annotated[bool, typer.Option("--atomic", help="Copy all tables as of the same moment.")]
Format = Annotated[
    StashFormat,
    typer.Option("--format", help="Format of the files: gzipped JSON lines, or Parquet."),
]
OptionalDestination = Annotated[
    str | None,
    typer.Option(
        "--destination",
        metavar="DEST",
        help="Place of the stash. Default: any.",
    ),
]
StashName = Annotated[
    str | None,
    typer.Argument(
        metavar="[STASH]",
        help="Name of a stash, such as 2026-01-31-00-00-00. Default: the only one that is not "
        "complete.",
    ),
]


@stash.command("run")
@instance_command
def run(
    instance: "Instance",
    destination: Destination,
    table: Tables = None,
    atomic: Atomic = False,
    file_format: Format = StashFormat.JSON,
    exclude: Exclude = None,
    submit: Annotated[
        bool,
        typer.Option("--submit", help="Let workers make the stash, and do not wait for its end."),
    ] = False,
    master: SparkMaster = None,
    conf: SparkConf = None,
) -> None:
    """Make a stash of the tables now, and print its name.

    A stash is a folder in DEST, named after its start in UTC, with a directory of gzipped JSON
    lines or Parquet files for each table that has rows. It is complete when it contains _SUCCESS.
    Each table is copied at one transaction. Every update that was committed before the start is in
    the stash. This process writes the files, or Spark if --master or sleeper.spark.master names
    one.

    \b
    Examples:
      sleeper stash run --destination /data/stash
      sleeper stash run --destination s3://my-bucket/stash --atomic
      sleeper stash run --destination /data/stash --table orders --table customers
      sleeper stash run --destination s3://my-bucket/stash --submit
      sleeper stash run --destination /data/stash --exclude 'tmp_*' --exclude users
      sleeper stash run --destination /data/stash --format parquet
      sleeper stash run --destination s3://my-bucket/stash --master spark://10.0.0.1:7077
    """
    from sleeper.stash.record import StashRequest
    from sleeper.stash.run import make_locked_stash
    from sleeper.stash.start import start_stash

    request = StashRequest(
        destination,
        tuple(table or ()),
        atomic,
        format=file_format,
        submitted=submit,
        exclude=tuple(exclude or ()),
    )
    if not submit:
        open_tasks = _choose_tasks(instance, master, conf)
        with ExitStack() as locked:
            record = start_stash(instance, request, locked=locked)
            make = partial(make_locked_stash, instance, record, open_tasks=open_tasks)
            _make(record, make)
        return
    refuse_spark_options("--submit", master, conf)
    from sleeper.stash.message import check_workers

    check_workers(instance, destination)
    record = start_stash(instance, request)
    note("submitted: workers make it (`sleeper stash status` shows how far it is)")
    typer.echo(record.name)


@stash.command("status")
@instance_command
def status(
    instance: "Instance",
    name: Annotated[
        str | None,
        typer.Argument(metavar="[STASH]", help="Name of a stash. Default: all stashes."),
    ] = None,
    destination: OptionalDestination = None,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Show how far the stashes of the instance are, or the tables of one of them.

    A stash is waiting, running, interrupted (its process died), finishing, complete, cancelled or
    failed. The reason is that of a failure, or the last errors of tasks that are not done.

    \b
    Examples:
      sleeper stash status
      sleeper stash status 2026-01-31-00-00-00 --destination s3://my-bucket/stash
    """
    from sleeper.stash.status import get_status, list_statuses, list_table_statuses

    if name is None:
        listing = list_statuses(instance, _digest(destination))
    else:
        record = _find(instance, destination, name)
        listing = list_table_statuses(get_status(instance, record))
    print_listings([listing], output)


@stash.command("cancel")
@instance_command
def cancel(
    instance: "Instance",
    name: StashName = None,
    destination: OptionalDestination = None,
) -> None:
    """Cancel a stash that is not complete, and delete its files.

    The process or the workers that make it stop after the file that they write.

    \b
    Example:
      sleeper stash cancel 2026-01-31-00-00-00
    """
    from sleeper.stash.finish import cancel_stash

    record = _find(instance, destination, name)
    cancel_stash(instance, record)
    note(f"cancelled stash {record.name} of {record.request.destination}")


@stash.command("recover")
@instance_command
def recover(
    instance: "Instance",
    name: StashName = None,
    destination: OptionalDestination = None,
    submit: Annotated[
        bool,
        typer.Option("--submit", help="Let workers make what is missing, and do not wait."),
    ] = False,
    master: SparkMaster = None,
    conf: SparkConf = None,
) -> None:
    """Continue a stash whose process died, or whose tasks failed.

    It keeps its name and its cuts: it has each row once, as of the same transactions. That is
    possible until the holds on the cuts expire (sleeper.stash.hold.minutes).

    \b
    Examples:
      sleeper stash recover
      sleeper stash recover 2026-01-31-00-00-00 --submit
    """
    from sleeper.reports.output import pluralize
    from sleeper.stash.control import check_recoverable, recover_stash

    record = _find(instance, destination, name)
    if not submit:
        from sleeper.stash.run import make_stash

        check_recoverable(record)
        open_tasks = _choose_tasks(instance, master, conf)
        _make(record, partial(make_stash, instance, record, open_tasks=open_tasks))
        return
    refuse_spark_options("--submit", master, conf)
    from sleeper.stash.message import check_workers

    check_workers(instance, record.request.destination)
    sent = recover_stash(instance, record)
    note(f"sent {pluralize(sent, 'task')} of stash {record.name} to workers")


def _choose_tasks(instance: "Instance", master: str | None, conf: list[str] | None) -> "OpenTasks":
    """Returns what does the tasks: this process, or Spark if a master is named."""
    from sleeper.spark.settings import choose_cluster
    from sleeper.stash.run import tasks_in_threads

    spark = choose_cluster(instance.properties(), master, conf or ())
    if spark is None:
        return tasks_in_threads
    with needs_spark("sleeper stash --master"):
        from sleeper.stash.spark.job import tasks_on
    return partial(tasks_on, spark)


def _make(record: "StashRecord", make: "Callable[[OnStage], StashResult]") -> None:
    from sleeper.reports.output import pluralize

    start = time.monotonic()
    try:
        with show_stages("stash") as on_stage:
            result = make(on_stage)
    except BaseException:
        if record.decision() is None:
            note(f"stash {record.name} can be continued: sleeper stash recover {record.name}")
        raise
    rows = sum(each.rows for each in result.tables)
    files = sum(each.files for each in result.tables)
    note(
        f"{pluralize(rows, 'row')} of {pluralize(len(result.tables), 'table')} in "
        f"{pluralize(files, 'file')}, {time.monotonic() - start:.1f} s"
    )
    typer.echo(result.root)


def _find(instance: "Instance", destination: str | None, name: str | None) -> "StashRecord":
    from sleeper.stash.record_index import StashRecords

    records = StashRecords(instance.storage.root)
    return records.find(_digest(destination), name)


def _digest(destination: str | None) -> str | None:
    from sleeper.stash.destination import parse_destination
    from sleeper.stash.record_index import destination_digest

    return destination and destination_digest(parse_destination(destination))
