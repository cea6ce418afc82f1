"""`sleeper undo`, and `sleeper table restore`, `clone` and `reinitialise`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import TableName, complete_table
from sleeper.cli.output import instance_command, note

if TYPE_CHECKING:
    from sleeper.admin.versions import VersionChange
    from sleeper.instance import Instance


RequestId = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="ID",
        help="Id of the request. A repeated request with the same id changes nothing.",
    ),
]


@instance_command
def restore(
    instance: "Instance",
    name: TableName,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="N|TIME|AGE",
            help="Restore the version of transaction N, or of a time (ISO 8601, UTC without a "
            "zone) or an age (such as 30m, 2h or 2d).",
        ),
    ],
    request_id: RequestId = None,
) -> None:
    """Make the rows of an old version the newest, in one transaction.

    No file is rewritten. Schema, properties and partitions stay. The versions in between are
    readable as before, so a restore can be restored too. `sleeper table history` lists versions.

    \b
    Examples:
      sleeper table restore flights --to 12
      sleeper table restore flights --to 2h
    """
    from sleeper.admin.versions import restore_table
    from sleeper.statestore.version import parse_version_text

    change = restore_table(instance, name, parse_version_text(to), request_id)
    if change.number is None:
        note(f"nothing to restore: version {change.version} of {name} is the newest")
    elif not _note_done(change, "restore"):
        note(
            f"restored version {change.version} of {name}: transaction {change.number} "
            f"(restore {change.id})"
        )


@instance_command
def clone(
    instance: "Instance",
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="Table to clone.", autocompletion=complete_table),
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new table.")],
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="N|TIME|AGE",
            help="Clone the version of transaction N, or of a time or an age, as for "
            "`sleeper query`. The default is the newest.",
        ),
    ] = None,
) -> None:
    """Create a table on the files of a version of another table. No data is copied.

    The new table has the rows, schema, partitions and properties of the version. Both tables
    change independently, and either can be deleted. An interrupted clone is listed in the state
    `creating`; repeat the command or delete the table.

    \b
    Examples:
      sleeper table clone flights flights-test
      sleeper table clone flights flights-before --as-of 2h
    """
    from sleeper.admin.clone import clone_table
    from sleeper.reports.output import pluralize
    from sleeper.statestore.version import parse_version_text

    version = None if as_of is None else parse_version_text(as_of)
    result = clone_table(instance, source, name, version)
    note(
        f"cloned version {result.version} of {source} as {name}: "
        f"{pluralize(result.files, 'file')}, {result.bytes:,} bytes"
    )


@instance_command
def reinitialise(
    instance: "Instance",
    name: TableName,
    split_points: Annotated[
        Path | None,
        typer.Option(
            "--split-points",
            metavar="FILE",
            help="Split points to add to the table's partitions, as for `sleeper table create`.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    request_id: RequestId = None,
) -> None:
    """Remove all rows of a table, in one transaction.

    Schema, properties and partitions stay; leaves are split at new split points. Garbage collection
    deletes the files; until then `sleeper table restore` brings the rows back. Asks for
    confirmation on a terminal.

    \b
    Examples:
      sleeper table reinitialise flights --yes
      sleeper table reinitialise flights --yes --split-points splits.txt
    """
    from sleeper.admin.tables import read_split_points
    from sleeper.admin.versions import reinitialise_table
    from sleeper.properties.table import SPLITS_BASE64

    table = instance.table(name)
    points: list[int | str | bytes] = []
    if split_points is not None:
        with table.state.reading() as state:
            schema = state.schema
        points = read_split_points(schema, split_points, table.properties().get(SPLITS_BASE64))
    if not yes and sys.stdin.isatty():
        typer.confirm(f"remove all rows of table {name}?", abort=True, err=True)
    change = reinitialise_table(instance, name, request_id, points)
    if not _note_done(change, "reinitialisation"):
        note(f"removed all rows of {name}: transaction {change.number}")


@instance_command
def undo(
    instance: "Instance",
    job_id: Annotated[str, typer.Argument(metavar="JOB_ID", help="Id of an ingest or import job.")],
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            metavar="NAME",
            help="Table of the job. Default: all tables are searched.",
            autocompletion=complete_table,
        ),
    ] = None,
) -> None:
    """Take back what one ingest or import added, in one transaction.

    Rows that other jobs added stay. Fails if a compaction has merged rows of the job with others;
    the error names the version that can be restored instead. The id of the job stays used.

    \b
    Examples:
      sleeper undo 4d47ec675c6746aea4f64a71be7be397
      sleeper undo load-2026-01-31 --table flights
    """
    from sleeper.admin.versions import undo_job

    change = undo_job(instance, job_id, table)
    if change.number is None:
        note(f"nothing to undo: no row of job {job_id} is in {change.table}")
    else:
        note(f"undid job {job_id} in {change.table}: transaction {change.number}")


def _note_done(change: "VersionChange", noun: str) -> bool:
    if change.already_done:
        note(f"{noun} {change.id} is already done: transaction {change.number}")
    return change.already_done
