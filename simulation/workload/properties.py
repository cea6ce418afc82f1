"""Operations that change a table's properties while it is used: processing, and how it is kept.

A changed filter or aggregation must give the same rows whatever was compacted before. So filters
become stricter only, and aggregations are added to tables that have none.
"""

from collections.abc import Mapping
from dataclasses import replace

from simulation.model.tables import (
    TableKind,
    random_aggregations,
    random_upkeep_settings,
)
from simulation.workload.client import Client, CreatedTable
from simulation.workload.registry import operation
from sleeper.admin.properties import set_table_properties
from sleeper.schema.model import PrimitiveType, Schema

_FILTERS, _AGGREGATIONS = "sleeper.table.filters", "sleeper.table.aggregations"
_DAY_MS = 86_400_000
# Of the random times, those of this year are younger at first.
_FIRST_AGE_MS = 400 * _DAY_MS
_FACTORS = (0.5, 0.9, 1.0)


@operation(2)
def change_upkeep(client: Client) -> None:
    """Changes thresholds and strategies of a table."""
    settings = random_upkeep_settings(client.random)
    names = client.random.sample(sorted(settings), client.random.randint(1, 3))
    chosen = {name: settings[name] for name in names}
    set_table_properties(client.instance, client.choose_table().name, chosen)


def _filterable(client: Client) -> list[tuple[CreatedTable, str]]:
    """Returns tables with the field by which their rows age, or may begin to."""
    fields = [(each, _aged_field(each)) for each in client.catalogue.active()]
    return [(table, name) for table, name in fields if name is not None]


def _aged_field(table: CreatedTable) -> str | None:
    if table.definition.age_ms is not None:
        text = table.definition.settings[_FILTERS]
        return text.removeprefix("ageOff(").partition(",")[0]
    schema: Schema = table.definition.schema
    times = [each.name for each in schema.keys if each.type is PrimitiveType.TIMESTAMP]
    return times[0] if times else None


def _has_filterable(client: Client) -> bool:
    return bool(_filterable(client))


@operation(1, _has_filterable)
def make_filter_stricter(client: Client) -> None:
    """Shortens the age at which rows age off, or gives a table such a filter."""
    table, field = client.random.choice(_filterable(client))
    before_ms = table.definition.age_ms
    if before_ms is None:
        age_ms = _FIRST_AGE_MS
    else:
        age_ms = max(1, int(before_ms * client.random.choice(_FACTORS)))
    _change(client, table, {_FILTERS: f"ageOff({field},{age_ms})"}, age_ms, table.definition.kind)


def _plain(client: Client) -> list[CreatedTable]:
    return [e for e in client.catalogue.active() if e.definition.kind is TableKind.APPEND]


def _has_plain(client: Client) -> bool:
    return bool(_plain(client))


@operation(0.5, _has_plain)
def add_aggregations(client: Client) -> None:
    """Gives a table of all rows aggregations, which may not fit a field."""
    table = client.random.choice(_plain(client))
    changes = {_AGGREGATIONS: random_aggregations(client.random, client.schema(table))}
    _change(client, table, changes, table.definition.age_ms, TableKind.AGGREGATED)


def _change(
    client: Client,
    table: CreatedTable,
    changes: Mapping[str, str],
    age_ms: int | None,
    kind: TableKind,
) -> None:
    """Changes the processing. Other clients know before that the table may have it."""
    settings = {**table.definition.settings, **changes}
    table.definition = replace(table.definition, kind=kind, settings=settings, age_ms=age_ms)
    set_table_properties(client.instance, table.name, changes)
