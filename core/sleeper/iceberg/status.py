"""The state of publications: what is published of each table, and what is published too late."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from sleeper.errors import InvalidRequestError
from sleeper.iceberg.locations import metadata_of, recorded_locations
from sleeper.iceberg.metadata import current_number, table_id_of
from sleeper.iceberg.properties import ICEBERG_SECONDS
from sleeper.iceberg.publishable import check_publishable, find_uncompacted
from sleeper.instance import Instance, OpenTable
from sleeper.reports.output import pluralize
from sleeper.reports.problem import Problem, ProblemState, check_each
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.transactions.codec import kinds_of
from sleeper.statestore.transactions.transaction import Subject

if TYPE_CHECKING:
    from sleeper.iceberg.publish import Published

# `sleeper run` may be busy, or a compaction may have to come first.
_LATE_MS = 60_000


def find_problems(instance: Instance) -> Iterator[Problem]:
    """Yields the tables with the property whose rows changed, and were not published in time."""
    tables = {ref.name: OpenTable(instance, ref) for ref in instance.tables.index.list()}
    published = [name for name, each in tables.items() if each.properties().get(ICEBERG_SECONDS)]
    yield from check_each("iceberg", published, lambda name: _find_late(tables[name]))


def find_publications(instance: Instance) -> Iterator["Published"]:
    """Yields what was published last of each table, in each of its locations."""
    from sleeper.iceberg.publish import describe

    for ref in instance.tables.index.list():
        table = OpenTable(instance, ref)
        for url in recorded_locations(table):
            location = metadata_of(table, url)
            version, metadata = location.read()
            if metadata is not None and table_id_of(metadata) == ref.id:
                lag = _find_lag(table, current_number(metadata) or 0)
                behind = lag.transactions if lag else 0
                yield describe(location, version, metadata, is_new=False, behind=behind)


class _Lag(NamedTuple):
    """How many transactions came after a version, and when the first of them changed rows.

    The text is empty, or says why the newest version cannot be published.
    """

    transactions: int
    since_ms: int
    obstacle: str


def _find_lag(table: OpenTable, number: int) -> _Lag | None:
    """Returns the lag of a version; None if no later transaction changed rows."""
    with table.state.reading() as state:
        changed = state.history.first(kinds_of(Subject.ROWS), number, state.number)
        if changed is None:
            return None
        obstacle = _find_obstacle(table.ref.name, state)
        return _Lag(state.number - number, state.entry_time_ms(changed), obstacle)


def _find_late(table: OpenTable) -> Iterator[Problem]:
    _, metadata = metadata_of(table).read()
    lag = _find_lag(table, current_number(metadata) or 0)
    if lag is None:
        return
    due_ms = lag.since_ms + table.properties().get(ICEBERG_SECONDS) * 1000
    if table.instance.clock() > due_ms + _LATE_MS:
        behind = pluralize(lag.transactions, "transaction")
        reason = f"the published version is {behind} behind{lag.obstacle}"
        yield Problem(ProblemState.LAGGING, "iceberg", table.ref.name, reason, lag.since_ms)


def _find_obstacle(name: str, state: TableState) -> str:
    """Returns why the version cannot be published, an empty text if it can."""
    try:
        check_publishable(name, state)
    except InvalidRequestError as error:
        return f": {error}"
    if find_uncompacted(state) is not None:
        return f": it must be compacted, as `sleeper iceberg publish {name} --compact` does"
    return ""
