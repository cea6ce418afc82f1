"""Problems of publications: tables whose commits are published too late."""

from collections.abc import Iterator

from sleeper.errors import InvalidRequestError
from sleeper.iceberg.locations import metadata_of
from sleeper.iceberg.metadata import current_number
from sleeper.iceberg.properties import ICEBERG_SECONDS
from sleeper.iceberg.publishable import check_publishable, must_be_compacted
from sleeper.instance import Instance, OpenTable
from sleeper.reports.output import pluralize
from sleeper.reports.problem import Problem, ProblemState, check_each
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.transactions.codec import kinds_of
from sleeper.statestore.transactions.transaction import Subject

# `sleeper run` may be busy, or a compaction may have to come first.
_LATE_MS = 60_000


def find_problems(instance: Instance) -> Iterator[Problem]:
    """Yields the tables with the property whose rows changed, and were not published in time."""
    tables = {ref.name: OpenTable(instance, ref) for ref in instance.tables.index.list()}
    published = [name for name, each in tables.items() if each.properties().get(ICEBERG_SECONDS)]
    yield from check_each("iceberg", published, lambda name: _find_late(tables[name]))


def _find_late(table: OpenTable) -> Iterator[Problem]:
    _, metadata = metadata_of(table).read()
    number = current_number(metadata) or 0
    with table.state.reading() as state:
        changed = state.history.first(kinds_of(Subject.ROWS), number, state.number)
        if changed is None:
            return
        since_ms, behind = state.entry_time_ms(changed), state.number - number
        obstacle = _find_obstacle(table.ref.name, state)
    due_ms = since_ms + table.properties().get(ICEBERG_SECONDS) * 1000
    if table.instance.clock() > due_ms + _LATE_MS:
        reason = f"the published version is {pluralize(behind, 'transaction')} behind{obstacle}"
        yield Problem(ProblemState.LAGGING, "iceberg", table.ref.name, reason, since_ms)


def _find_obstacle(name: str, state: TableState) -> str:
    """Returns why the version cannot be published, an empty text if it can."""
    try:
        check_publishable(name, state)
    except InvalidRequestError as error:
        return f": {error}"
    if must_be_compacted(state):
        return f": it must be compacted, as `sleeper iceberg publish {name} --compact` does"
    return ""
