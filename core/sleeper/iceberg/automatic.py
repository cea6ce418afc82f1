"""Publications after commits, of the tables with the property.

`sleeper run` looks at all tables every few seconds. On AWS the stream of the log table starts a
function soon after each commit, and a schedule starts it for what an event missed. Most instances
have no such tables, and need neither the library nor its import.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from sleeper.errors import NotFoundError, SleeperError
from sleeper.iceberg.locations import metadata_of
from sleeper.iceberg.metadata import current_number
from sleeper.iceberg.metrics import SCHEDULE_MINUTES, IcebergMetric
from sleeper.iceberg.properties import ICEBERG_SECONDS
from sleeper.iceberg.status import find_problems
from sleeper.instance import Instance, OpenTable
from sleeper.tables import TableId, TableRef

logger = logging.getLogger(__name__)
# `sleeper run` looks that often.
_PERIOD_SECONDS = 5


@dataclass(slots=True)
class PublishReport:
    """How many tables were `published`, and why others were not."""

    published: int = 0
    problems: list[str] = field(default_factory=list)


def publish_due(instance: Instance, due_ms: int | None) -> tuple[bool, Sequence[str]]:
    """Publishes the tables whose time has come. Returns whether one was, and the problems.

    With `due_ms`, `sleeper run` ends when no work is left, so all of these tables are due.
    """
    period_seconds = _PERIOD_SECONDS if due_ms is None else None
    report = _publish(instance, instance.tables.index.list(), period_seconds)
    return report.published > 0, report.problems


def publish_all(instance: Instance) -> PublishReport:
    """Publishes the tables whose time comes before the next run of the schedule."""
    return _publish(instance, instance.tables.index.list(), 60 * SCHEDULE_MINUTES)


def publish_changed(instance: Instance, table_ids: Collection[str]) -> PublishReport:
    """Publishes those of the tables whose time comes before the next run of the schedule."""
    refs = [ref for each in sorted(table_ids) if (ref := _find(instance, each)) is not None]
    return _publish(instance, refs, 60 * SCHEDULE_MINUTES)


def count_late(instance: Instance) -> dict[str, int]:
    """Returns the number of tables that were not published in time, nothing if there are none."""
    late = len(list(find_problems(instance)))
    return {IcebergMetric.LATE: late} if late else {}


def _find(instance: Instance, table_id: str) -> TableRef | None:
    try:
        ref = instance.tables.index.get(TableId(table_id))
    except NotFoundError:
        return None  # it was deleted meanwhile
    return ref if ref.deleted_ms is None else None


def _publish(
    instance: Instance, refs: Iterable[TableRef], period_seconds: int | None
) -> PublishReport:
    """Publishes the tables that are due within the period, without one all."""
    report = PublishReport()
    for ref in refs:
        table = OpenTable(instance, ref)
        try:
            seconds = table.properties().get(ICEBERG_SECONDS)
            if seconds:
                wait_seconds = 0 if period_seconds is None else max(0, seconds - period_seconds)
                report.published += _publish_if_due(table, wait_seconds)
        except SleeperError as error:
            problem = f"table {ref.name} is not published: {error}"
            logger.warning("%s", problem)
            report.problems.append(problem)
    return report


def _publish_if_due(table: OpenTable, wait_seconds: int) -> bool:
    _, metadata = metadata_of(table).read()
    if metadata is not None:
        is_newest = current_number(metadata) == table.state.newest_number()
        age_ms = table.instance.clock() - int(metadata["last-updated-ms"])
        # It is negative if the clock was set back.
        if is_newest or 0 <= age_ms < wait_seconds * 1000:
            return False
    from sleeper.iceberg.service import publish_table

    return publish_table(table).is_new
