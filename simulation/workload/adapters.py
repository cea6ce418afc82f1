"""Operations of adapters: sources of files and of tables, runs here and by workers, schedules."""

import io

import pyarrow.parquet as pq

from simulation.model.tables import TableDefinition, TableKind, random_row
from simulation.model.values import batch_rows
from simulation.systems.records import AdapterSource
from simulation.workload.client import Client, CreatedTable
from simulation.workload.ingests import to_arrow
from simulation.workload.registry import has_table, operation
from sleeper.adapters.due import schedule_adapter
from sleeper.adapters.message import submit_run
from sleeper.adapters.report import show_adapter
from sleeper.adapters.run import run_adapter
from sleeper.adapters.service import create_adapter
from sleeper.adapters.source_text import NewAdapter
from sleeper.adapters.store import AdapterStore
from sleeper.admin.tables import create_table
from sleeper.query.request import Query
from sleeper.query.service import open_query

_ADAPTERS_MAX = 3
_TABLES_MAX = 5
_SCHEDULES = ("1h", "rate(3 hours)", "cron(0 6 * * ? *)", None)


def _new_name(client: Client) -> str:
    return f"adapter-{len(client.journal.adapters) + 1}"


def _has_room(client: Client) -> bool:
    return has_table(client) and len(client.journal.adapters) < _ADAPTERS_MAX


@operation(2, _has_room)
def create_adapter_of_files(client: Client) -> None:
    """Creates an adapter that loads a file into a table."""
    table = client.choose_table()
    schema, now_ms = client.schema(table), client.instance.clock()
    count = client.random.randint(1, 12)
    rows = [random_row(client.random, schema, now_ms) for _ in range(count)]
    content, name = io.BytesIO(), _new_name(client)
    pq.write_table(to_arrow(rows, schema), content)
    path = client.put_source(f"{name}.parquet", content.getvalue())
    client.journal.adapters[name] = AdapterSource(rows)
    create_adapter(client.instance, NewAdapter(name, path, table.name))


def _may_copy_table(client: Client) -> bool:
    return _has_room(client) and len(client.catalogue.active()) < _TABLES_MAX


@operation(2, _may_copy_table)
def create_adapter_of_table(client: Client) -> None:
    """Creates a snapshot table, and an adapter that loads a version of another table into it."""
    source, name = client.choose_table(), _new_name(client)
    with client.instance.table(source.name).state.reading() as state:
        version, schema = state.number, state.schema
    with open_query(client.instance, source.name, Query(version=version)) as result:
        values = [row for batch in result for row in batch_rows(batch)]
    names = [each.name for each in schema.fields]
    rows = [dict(zip(names, row, strict=True)) for row in values]
    sink = _create_sink(client, source)
    client.journal.adapters[name] = AdapterSource(rows)
    create_adapter(client.instance, NewAdapter(name, f"table:{source.name}@{version}", sink))


def _create_sink(client: Client, source: CreatedTable) -> str:
    """Creates a snapshot table with the fields that the source had at first."""
    settings = {"sleeper.table.type": "snapshot", "sleeper.table.snapshot.ttl": "90m"}
    definition = TableDefinition(TableKind.SNAPSHOT, source.definition.schema, settings, ())
    name = client.catalogue.new_name()
    ref = create_table(client.instance, name, definition.schema_text, definition.settings)
    client.catalogue.tables[name] = CreatedTable(name, ref.id, definition)
    return name


def _has_adapter(client: Client) -> bool:
    return bool(client.journal.adapters)


def _choose_adapter(client: Client) -> str:
    return client.random.choice(list(client.journal.adapters))


def _random_run(client: Client) -> str:
    """Returns the id of a run, which may have been run before."""
    return f"run-{client.random.randrange(6)}"


@operation(3, _has_adapter)
def run_adapter_here(client: Client) -> None:
    """Runs an adapter in this process, perhaps again."""
    run_adapter(client.instance, _choose_adapter(client), _random_run(client))


@operation(2, _has_adapter)
def submit_adapter(client: Client) -> None:
    """Sends a run of an adapter to workers, perhaps twice."""
    name, run_id = _choose_adapter(client), _random_run(client)
    for _ in range(client.random.choice((1, 1, 2))):
        submit_run(client.instance, name, run_id)


@operation(2, _has_adapter)
def schedule_runs(client: Client) -> None:
    """Sets or removes the schedule of an adapter."""
    schedule_adapter(client.instance, _choose_adapter(client), client.random.choice(_SCHEDULES))


@operation(1, _has_adapter)
def look_at_adapter(client: Client) -> None:
    """Reads the definition of an adapter, and its latest runs."""
    show_adapter(client.instance, _choose_adapter(client), 5)


@operation(0.3, _has_adapter)
def delete_adapter(client: Client) -> None:
    """Deletes an adapter, whose runs may still wait."""
    AdapterStore(client.instance.storage.root).delete(_choose_adapter(client))
