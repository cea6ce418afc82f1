"""Versions of a table from Python: their names, and changes that are taken back."""

from collections.abc import Sequence
from datetime import datetime

from sleeper.admin.versions import VersionChange, reinitialise_table, restore_table, undo_job
from sleeper.api.argument_types import check_argument_types
from sleeper.instance import Instance as Ports
from sleeper.statestore.version import parse_version

AsOf = int | datetime | str
"""A version: a transaction number, a time, or ISO 8601 text or an age such as `2h`."""


@check_argument_types
class TableVersions:
    """The methods of `Table` that tell its version, restore an old one and take back changes."""

    _instance: Ports
    name: str

    def restore(self, to: AsOf, restore_id: str | None = None) -> VersionChange:
        """Makes the rows of an old version those of the newest, in one transaction.

        `to` is a transaction number, a time or an age, as `as_of` of `query`. Schema, properties
        and partitions stay. `restore_id` makes the call idempotent: a repeated call with the id
        of an earlier one, within 30 days, changes nothing. The default is a random id. The result
        has the `number` of the transaction, and the `version` that was restored.

        Raises `InvalidRequestError` for a version that is no longer readable or does not exist
        yet, and `ConflictError` if the id was used for another version. After `UnavailableError`
        repeat the call with the id in the error's message.
        """
        return restore_table(self._instance, self.name, parse_version(to), restore_id)

    def undo(self, job_id: str) -> VersionChange:
        """Takes back what an ingest or import added, in one transaction.

        Rows that other jobs added stay, and the job's id stays used. The result has the `number`
        of the transaction, `None` if no row of the job is in the table.

        Raises `NotFoundError` if the table has no such job within 30 days, and
        `InvalidRequestError` if a compaction has merged rows of the job with others.
        """
        return undo_job(self._instance, job_id, self.name)

    def reinitialise(
        self, request_id: str | None = None, split_points: Sequence[object] = ()
    ) -> VersionChange:
        """Removes all rows, in one transaction. Schema, properties and partitions stay.

        Then leaves are split at those of `split_points` that divide one: values of the first row
        key field, in ascending order. Garbage collection deletes the files; until then `restore`
        brings the rows back. `request_id` makes the call idempotent, as `restore_id` of `restore`
        does.

        Raises `InvalidRequestError` for a split point that is not valid.
        """
        return reinitialise_table(self._instance, self.name, request_id, split_points)

    @property
    def version(self) -> int:
        """The number of the newest transaction, a value for `as_of`."""
        with self._instance.table(self.name).state.reading() as state:
            return int(state.number)
