"""Publications after commits, of the tables with the property.

Most instances have none, and need neither the library nor its import.
"""

import logging
from collections.abc import Sequence

from sleeper.errors import SleeperError
from sleeper.iceberg.locations import metadata_of
from sleeper.iceberg.metadata import current_number
from sleeper.iceberg.properties import ICEBERG_SECONDS
from sleeper.instance import Instance, OpenTable

logger = logging.getLogger(__name__)
# `sleeper run` looks that often.
_PERIOD_SECONDS = 5


def publish_due(instance: Instance, due_ms: int | None) -> tuple[bool, Sequence[str]]:
    """Publishes the tables whose time has come. Returns whether one was, and the problems.

    With `due_ms`, `sleeper run` ends when no work is left, so all of these tables are due.
    """
    did_anything, problems = False, []
    for ref in instance.tables.index.list():
        table = OpenTable(instance, ref)
        try:
            seconds = table.properties().get(ICEBERG_SECONDS)
            if seconds:
                wait_seconds = max(0, seconds - _PERIOD_SECONDS) if due_ms is None else 0
                did_anything |= _publish_if_due(table, wait_seconds)
        except SleeperError as error:
            problem = f"table {ref.name} is not published: {error}"
            logger.warning("%s", problem)
            problems.append(problem)
    return did_anything, problems


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
