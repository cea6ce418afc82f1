"""`sleeper stash schedule`, `request` and `prune`: stashes at due times, and their deletion."""

import getpass
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import OutputKind, OutputOption
from sleeper.cli.output import instance_command, note, print_listings, warn
from sleeper.stash.commands import Atomic, Destination, Exclude, Format, Tables
from sleeper.stash.layout import StashFormat
from sleeper.stash.reading_commands import stash

if TYPE_CHECKING:
    from sleeper.instance import Instance


@instance_command
def prune(
    instance: "Instance",
    destination: Destination,
    older_than: Annotated[
        str,
        typer.Option("--older-than", metavar="AGE", help="Age, such as 7d or 36h."),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be deleted, and delete nothing.")
    ] = False,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Delete the old stashes of a destination, and list them.

    The age of a stash counts from the completion of the next one, so a stash can be read for that
    long after it was the latest. The latest stash is never deleted. Incomplete stashes are deleted
    if they were started and written to that long ago, and at least a day ago, unless they are
    being made. Files that no stash writes are kept.

    \b
    Examples:
      sleeper stash prune --destination /data/stash --older-than 7d
      sleeper stash prune --destination s3://my-bucket/stash --older-than 36h --dry-run
    """
    from sleeper.stash.listings import list_pruned
    from sleeper.stash.prune import parse_age, prune_stashes

    age_ms = parse_age(older_than)
    report = prune_stashes(instance, destination, age_ms, dry_run)
    print_listings([list_pruned(report, age_ms)], output)
    warn(report.problems)


@instance_command
def schedule(
    instance: "Instance",
    expression: Annotated[
        str | None,
        typer.Argument(
            metavar="[SCHEDULE]",
            help="A duration such as 12h or 1d, 'rate(1 hour)', a cron expression of Amazon "
            "EventBridge in UTC such as 'cron(0 6 * * ? *)', or none. Default: daily at midnight.",
        ),
    ] = None,
    destination: Annotated[
        str | None,
        typer.Option(
            "--destination",
            metavar="DEST",
            help="Place of the stashes. Default: list all schedules.",
        ),
    ] = None,
    table: Tables = None,
    atomic: Atomic = False,
    file_format: Format = StashFormat.JSON,
    exclude: Exclude = None,
    only_if_requested: Annotated[
        bool,
        typer.Option(
            "--only-if-requested",
            help="Leave out a stash that nobody requested with `sleeper stash request` since the "
            "last one.",
        ),
    ] = False,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep",
            metavar="AGE",
            help="After each stash, delete those that are older, as `sleeper stash prune` does.",
        ),
    ] = None,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Make stashes of a destination on a schedule, or list all schedules.

    `sleeper run` makes the stashes, or StashStack on AWS. A stash is named after its due time. It
    waits until another stash of the destination has ended. After downtime, one stash catches up.

    \b
    Examples:
      sleeper stash schedule --destination /data/stash
      sleeper stash schedule --destination /data/stash 'cron(30 5 ? * MON-FRI *)' --keep 7d
      sleeper stash schedule --destination s3://my-bucket/stash 1d --only-if-requested
      sleeper stash schedule --destination /data/stash none
      sleeper stash schedule
    """
    if destination is None:
        is_default = file_format is StashFormat.JSON
        options = (expression, table, atomic, exclude, only_if_requested, keep, not is_default)
        if any(options):
            raise typer.BadParameter("a schedule needs --destination")
        from sleeper.stash.listings import list_schedules
        from sleeper.stash.schedules import ScheduleStore

        print_listings([list_schedules(instance)], output)
        missed = ScheduleStore(instance.storage.root).list_missed(instance.clock())
        warn(each.describe() for each in missed)
        return
    if expression == "none":
        from sleeper.stash.requests import remove_schedule

        remove_schedule(instance, destination)
        note(f"removed the schedule of {destination}")
        return
    from sleeper.clock import iso_time
    from sleeper.schedule import next_due_ms
    from sleeper.stash.schedules import DAILY, schedule_stash

    made = schedule_stash(
        instance,
        destination,
        expression or DAILY,
        tuple(table or ()),
        atomic=atomic,
        stash_format=file_format,
        only_if_requested=only_if_requested,
        keep=keep,
        exclude=tuple(exclude or ()),
    )
    due_ms = next_due_ms(made.schedule, instance.clock())
    following = "" if due_ms is None else f", next at {iso_time(due_ms)}"
    note(f"stashes of {destination} are made on schedule {made.schedule.expression}{following}")


@instance_command
def request(
    instance: "Instance",
    destination: Destination,
    by: Annotated[
        str | None,
        typer.Option(
            "--by", metavar="NAME", help="Person or program that wants a stash. Default: the user."
        ),
    ] = None,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Withdraw the request of this name.")
    ] = False,
) -> None:
    """Request the next scheduled stash of a destination.

    A schedule with --only-if-requested leaves out stashes that nobody requests. A request counts
    for one stash. Repeating it before that stash starts changes nothing.

    \b
    Examples:
      sleeper stash request --destination /data/stash
      sleeper stash request --destination s3://my-bucket/stash --by nightly-report
      sleeper stash request --destination /data/stash --by nightly-report --withdraw
    """
    from sleeper.stash.requests import request_stash, withdraw_request

    by = _user() if by is None else by
    if withdraw:
        is_withdrawn = withdraw_request(instance, destination, by)
        note(f"withdrew the request of {by}" if is_withdrawn else f"{by} has no request")
        return
    _, is_new = request_stash(instance, destination, by)
    again = "" if is_new else " already"
    note(f"{by} has{again} requested the next scheduled stash of {destination}")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # a container may run as a user without a name
        raise typer.BadParameter("the user has no name (expected --by NAME)") from error


stash.command("schedule")(schedule)
stash.command("request")(request)
stash.command("prune")(prune)
