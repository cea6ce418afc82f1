"""Stashes of an instance from Python."""

import os
from collections.abc import Callable, Sequence

from sleeper.api.argument_types import check_argument_types
from sleeper.instance import Instance as Ports
from sleeper.stash.layout import parse_format
from sleeper.stash.prune import parse_age, prune_stashes
from sleeper.stash.requests import remove_schedule, request_stash
from sleeper.stash.run import StashResult, run_stash
from sleeper.stash.schedules import schedule_stash


@check_argument_types
class InstanceStashes:
    """The methods of `Instance` that make, schedule and delete stashes."""

    _ports: Ports

    def stash(
        self,
        destination: str | os.PathLike[str],
        tables: Sequence[str] = (),
        atomic: bool = False,
        on_stage: Callable[[str], None] = lambda _table: None,
        format: str = "json",
        exclude: Sequence[str] = (),
    ) -> StashResult:
        """Copies tables to a new folder of a destination, and waits.

        `destination` is a folder, `s3://bucket/prefix`, or the URL of another file system. `tables`
        are names; the default is all tables whose name matches none of the patterns in `exclude`,
        such as `tmp_*`. Each is copied at one transaction, and if `atomic`, all as of the same
        moment. `format` is `json`, gzipped JSON lines, or `parquet`. The result
        has `id` and `root`, the name of the new folder, and for each of `tables` its `table`,
        `version`, `rows`, `files` and `bytes`. `sleeper.stash.Stash` reads it.
        `on_stage` receives each table that is copied.

        Raises `InvalidRequestError` for an unusable destination or an unknown format,
        `NotFoundError` for an unknown table, and `ConflictError` if another stash of the
        destination is being made. After most errors, `sleeper stash recover` continues.
        """
        return run_stash(
            self._ports,
            os.fspath(destination),
            tables,
            atomic,
            on_stage=on_stage,
            format=parse_format(format),
            exclude=exclude,
        )

    def schedule_stash(
        self,
        destination: str | os.PathLike[str],
        schedule: str | None,
        tables: Sequence[str] = (),
        atomic: bool = False,
        only_if_requested: bool = False,
        keep: str | None = None,
        format: str = "json",
        exclude: Sequence[str] = (),
    ) -> None:
        """Sets the schedule of a destination of stashes, in place of an earlier one.

        `schedule` is a duration such as `1d`, `rate(1 hour)`, or `cron(0 6 * * ? *)` in UTC; None
        removes it. If `only_if_requested`, a due stash is left out unless somebody requested it.
        Stashes that are older than `keep`, such as `7d`, are deleted after each due time.
        `format` is `json` or `parquet`. `exclude` has patterns of tables that are not copied.
        `sleeper run` and instances on AWS make what is due.

        Raises `InvalidRequestError` if an argument is not valid, and `NotFoundError` for an unknown
        table, or if there is no schedule to remove.
        """
        if schedule is None:
            remove_schedule(self._ports, os.fspath(destination))
            return
        schedule_stash(
            self._ports,
            os.fspath(destination),
            schedule,
            tuple(tables),
            atomic=atomic,
            stash_format=parse_format(format),
            only_if_requested=only_if_requested,
            keep=keep,
            exclude=tuple(exclude),
        )

    def request_stash(self, destination: str | os.PathLike[str], by: str) -> bool:
        """Requests the next scheduled stash of a destination, in the name of `by`.

        Returns False if that name has requested it already. Raises `NotFoundError` if the
        destination has no schedule.
        """
        return request_stash(self._ports, os.fspath(destination), by)[1]

    def prune_stashes(
        self, destination: str | os.PathLike[str], older_than: str, dry_run: bool = False
    ) -> list[str]:
        """Deletes the old stashes of a destination, and returns their names, oldest first.

        The age of a stash, such as `7d`, counts from the completion of the next one. The latest
        stays. `dry_run` deletes nothing.

        Raises `InvalidRequestError` for an age that is not valid, and `NotFoundError` if the
        destination is a folder that does not exist.
        """
        age_ms = parse_age(older_than)
        report = prune_stashes(self._ports, os.fspath(destination), age_ms, dry_run)
        return [each.name for each in report.pruned]
