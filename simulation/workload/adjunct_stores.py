"""Operations of adjunct stores: filled from a table, read by others, loaded again.

A store is open during one operation only, so it ends with its process as a whole.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from simulation.model.values import comparable
from simulation.systems.records import StoreRead
from simulation.workload.client import Client, CreatedTable
from simulation.workload.registry import operation
from sleeper.adjunct.control import find_status, measure_lag, rebuild
from sleeper.adjunct.definition import EngineType, StoreDefinition
from sleeper.adjunct.feeds.opening import FeedContext
from sleeper.adjunct.open_store import Filling, Mode, OpenStore, UpdateSettings
from sleeper.adjunct.versions.version import StoreVersion
from sleeper.schema.model import PrimitiveType

_PLAIN = {PrimitiveType.INT, PrimitiveType.LONG, PrimitiveType.STRING, PrimitiveType.BYTE_ARRAY}
_BOOTSTRAP_SECONDS = 20.0
_REBUILD_SECONDS = 5.0


def _fitting_tables(client: Client) -> list[CreatedTable]:
    """Returns tables whose rows do not age, and whose keys compare as they are."""
    return [
        each
        for each in client.catalogue.active()
        if each.definition.age_ms is None
        and all(key.type in _PLAIN for key in each.definition.schema.row_keys)
    ]


def _has_fitting_table(client: Client) -> bool:
    return bool(_fitting_tables(client))


def _parent(client: Client) -> Path:
    """Returns the folder of stores."""
    return client.environment.machine_folder / "adjunct-stores"


def _name(table: CreatedTable) -> str:
    return f"store-of-{table.id}"


def _definition(client: Client, table: CreatedTable, kind: EngineType) -> StoreDefinition:
    has_history = client.random.random() < 0.8
    return StoreDefinition(_name(table), f"table:{table.name}", kind, bootstrap=has_history)


@contextmanager
def _context(client: Client) -> Iterator[FeedContext]:
    yield FeedContext(lambda: client.instance)


@operation(4, _has_fitting_table)
def fill_adjunct_store(client: Client) -> None:
    """Fills a store on disk or in memory, which follows its table for a few steps."""
    table = client.random.choice(_fitting_tables(client))
    kind = client.random.choice(list(EngineType))
    definition = _definition(client, table, kind)
    parent = None if kind is EngineType.MEMORY else _parent(client)
    settings = UpdateSettings(None, _BOOTSTRAP_SECONDS)
    filling = Filling(definition, lambda: _context(client))
    with closing(OpenStore(definition.name, parent, Mode.FILL, settings, filling)) as store:
        for _ in range(client.random.randint(1, 3)):
            store.refresh()
            _record(client, table, store.serving)


def _stored_tables(client: Client) -> list[CreatedTable]:
    parent = _parent(client)
    return [each for each in _fitting_tables(client) if (parent / _name(each)).is_dir()]


def _has_stored(client: Client) -> bool:
    return bool(_stored_tables(client))


@operation(3, _has_stored)
def read_adjunct_store(client: Client) -> None:
    """Reads a store on disk, which another process may fill or load again."""
    table = client.random.choice(_stored_tables(client))
    name, parent = _name(table), _parent(client)
    find_status(parent, name)
    with closing(OpenStore(name, parent, Mode.READ, UpdateSettings(None))) as store:
        store.refresh()
        _record(client, table, store.serving)
    with _context(client) as context:
        measure_lag(parent, name, context)


@operation(1, _has_stored)
def rebuild_adjunct_store(client: Client) -> None:
    """Loads a store again, or asks the process to that fills it."""
    table = client.random.choice(_stored_tables(client))
    with _context(client) as context:
        source = f"table:{table.name}"
        rebuild(_parent(client), _name(table), context, source, _REBUILD_SECONDS)


def _record(client: Client, table: CreatedTable, version: StoreVersion) -> None:
    """Records what the store has, unless it began without the table's history."""
    state = version.state
    number = state.positions.get("number", "")
    if state.is_incomplete or state.positions.get("table") != table.id or not number.isdecimal():
        return
    values = {
        key if isinstance(key, tuple) else (key,): {
            name: comparable(each) for name, each in value.items()
        }
        for key, value in version.scan()
    }
    client.journal.store_reads.append(StoreRead(_name(table), table.id, int(number), values))
