"""Operations on whole tables: create, clone, delete and bring back, rename, put offline."""

from simulation.model.journal import Clone
from simulation.model.tables import random_definition
from simulation.workload.client import Client, CreatedTable
from simulation.workload.registry import has_table, operation
from sleeper.admin.clone import clone_table
from sleeper.admin.tables import create_table, delete_table, rename, set_online, undelete_table
from sleeper.errors import NotFoundError


def _has_room(client: Client) -> bool:
    return client.catalogue.has_room()


def _has_source_and_room(client: Client) -> bool:
    return has_table(client) and _has_room(client)


def _has_deleted(client: Client) -> bool:
    return bool(client.catalogue.deleted()) and _has_room(client)


def _has_several(client: Client) -> bool:
    return len(client.catalogue.active()) > 1


@operation(4, _has_room)
def create(client: Client) -> None:
    """Creates a table of random schema, kind and properties."""
    definition, name = random_definition(client.random), client.catalogue.new_name()
    points = definition.split_points
    ref = create_table(client.instance, name, definition.schema_text, definition.settings, points)
    client.catalogue.tables[name] = CreatedTable(name, ref.id, definition)


@operation(2, _has_source_and_room)
def clone(client: Client) -> None:
    """Clones a version of a table."""
    source, name = client.choose_table(), client.catalogue.new_name()
    table = client.instance.table(source.name)
    with table.state.reading() as state:
        version = client.random.randint(max(1, state.horizon), state.number)
    client.journal.clones[name] = Clone(source.id, version)
    clone_table(client.instance, source.name, name, version)
    ref = client.instance.tables.index.find(name)
    client.catalogue.tables[name] = CreatedTable(name, ref.id, source.definition)


@operation(1, _has_several)
def delete(client: Client) -> None:
    """Deletes a table, sometimes so that it cannot be brought back."""
    table = client.choose_table()
    now = client.random.random() < 0.5
    table.is_deleted = True
    client.journal.deleted_tables.add(table.id)
    delete_table(client.instance, table.name, now)


@operation(1, _has_deleted)
def undelete(client: Client) -> None:
    """Brings a table back, if it still can be."""
    table = client.random.choice(client.catalogue.deleted())
    try:
        ref = undelete_table(client.instance, table.id)
    except NotFoundError:
        del client.catalogue.tables[table.name]
        raise
    table.is_deleted = ref.name != table.name


@operation(0.5)
def rename_table(client: Client) -> None:
    """Renames a table."""
    table, name = client.choose_table(), client.catalogue.new_name()
    clones = client.journal.clones
    if table.name in clones:
        clones[name] = clones[table.name]
    rename(client.instance, table.name, name)
    del client.catalogue.tables[table.name]
    table.name = name
    client.catalogue.tables[name] = table


@operation(0.5)
def switch_online(client: Client) -> None:
    """Puts a table online or offline, mostly online."""
    table = client.choose_table()
    set_online(client.instance, table.name, client.random.random() < 0.7)
