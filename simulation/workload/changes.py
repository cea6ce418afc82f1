"""Operations that change rows or fields: deletes, purges, restores, undos, schema changes."""

import pyarrow as pa

from simulation.model.journal import Deletion, Ingest, KeyRange, Other
from simulation.model.tables import random_key
from simulation.model.values import random_value
from simulation.workload.client import Client, CreatedTable, answered
from simulation.workload.registry import operation
from simulation.workload.text_files import file_suffix, random_options, write_file
from sleeper.admin.schema import change_schema
from sleeper.admin.versions import reinitialise_table, restore_table, undo_job
from sleeper.datafiles.arrow import arrow_schema
from sleeper.deletion.keys import delete_key_rows, delete_keys_from, delete_rows
from sleeper.partitions.region import Range, Region
from sleeper.processing.field_changes import (
    AddField,
    DropField,
    FieldChange,
    OrderFields,
    RenameField,
    WidenField,
)
from sleeper.processing.model import AggregationOp
from sleeper.purging.service import purge_table
from sleeper.schema.key_values import check_key_value
from sleeper.schema.model import Field, FieldType, PrimitiveType, Schema, smallest_key_value

_WIDER: dict[FieldType, FieldType] = {
    PrimitiveType.INT: PrimitiveType.LONG,
    PrimitiveType.FLOAT: PrimitiveType.DOUBLE,
}


@operation(5)
def delete_region(client: Client) -> None:
    """Deletes the rows of one or two regions."""
    table = client.choose_table()
    schema = client.open(table).schema
    regions = [_random_region(client, schema) for _ in range(client.random.randint(1, 2))]
    deletion = Deletion(id=client.new_id("delete"), table_id=table.id, regions=regions)
    client.journal.deletions[deletion.id] = deletion
    with answered(deletion):
        stored = [_stored_region(schema, region) for region in regions]
        result = delete_rows(client.instance, table.name, stored, deletion.id)
        deletion.acknowledge(result.number)


@operation(3)
def delete_keys(client: Client) -> None:
    """Deletes the rows of keys, which are written to a key file."""
    table = client.choose_table()
    schema = client.schema(table)
    keys = {random_key(client.random, schema) for _ in range(client.random.randint(1, 6))}
    deletion = Deletion(id=client.new_id("delete"), table_id=table.id, keys=frozenset(keys))
    client.journal.deletions[deletion.id] = deletion
    with answered(deletion):
        result = delete_key_rows(
            client.instance, table.name, [_key_batch(schema, sorted(keys))], (), deletion.id
        )
        deletion.acknowledge(result.number)


@operation(2)
def delete_keys_of_file(client: Client) -> None:
    """Deletes the rows of the keys in a user's file, and perhaps those of a region."""
    table, random = client.choose_table(), client.random
    schema = client.schema(table)
    keys = {random_key(random, schema) for _ in range(random.randint(1, 6))}
    regions = [_random_region(client, schema)] if random.random() < 0.3 else []
    deletion = Deletion(
        id=client.new_id("delete"), table_id=table.id, regions=regions, keys=frozenset(keys)
    )
    client.journal.deletions[deletion.id] = deletion
    options = random_options(random)
    rows = pa.Table.from_batches([_key_batch(schema, sorted(keys))])
    name = f"{deletion.id}{file_suffix(options)}"
    path = client.put_source(name, write_file(rows, schema, options, random))
    with answered(deletion):
        stored = [_stored_region(schema, region) for region in regions]
        result = delete_keys_from(client.instance, table.name, [path], stored, deletion.id)
        deletion.acknowledge(result.number)


def _key_batch(schema: Schema, keys: list[tuple[object, ...]]) -> pa.RecordBatch:
    target = pa.schema(list(arrow_schema(schema))[: len(schema.row_keys)])
    rows = [dict(zip(target.names, key, strict=True)) for key in keys]
    return pa.RecordBatch.from_pylist(rows, schema=target)


def _random_region(client: Client, schema: Schema) -> list[KeyRange]:
    """Returns a range per row key field, most of which are open at an end or at both."""
    region = []
    for each in schema.row_keys:
        low, high = (random_value(client.random, each.type) for _ in range(2))
        low, high = (low, high) if low < high else (high, None)
        is_open = client.random.random() < 0.3
        region.append((None, None) if is_open else (low, high))
    return region


def _stored_region(schema: Schema, region: list[KeyRange]) -> Region:
    ranges = [
        Range(
            smallest_key_value(each) if low is None else check_key_value(each, low),
            None if high is None else check_key_value(each, high),
        )
        for each, (low, high) in zip(schema.row_keys, region, strict=True)
    ]
    return Region(tuple(ranges))


@operation(1)
def purge(client: Client) -> None:
    """Removes the deleted rows of a table from the storage."""
    purge_table(client.instance, client.choose_table().name)


@operation(2)
def restore_version(client: Client) -> None:
    """Makes the rows of an older version those of the newest."""
    table = client.choose_table()
    with client.instance.table(table.name).state.reading() as state:
        version = client.random.randint(max(1, state.horizon), state.number)
    restore = Other(
        id=client.new_id("restore"),
        table_id=table.id,
        kinds=("restore_version",),
        argument=version,
    )
    client.journal.others[restore.id] = restore
    with answered(restore):
        result = restore_table(client.instance, table.name, version, restore.id)
        restore.acknowledge(result.number)


@operation(0.5)
def remove_all_rows(client: Client) -> None:
    """Removes all rows of a table."""
    table = client.choose_table()
    removal = Other(id=client.new_id("empty"), table_id=table.id, kinds=("reinitialise_table",))
    client.journal.others[removal.id] = removal
    with answered(removal):
        result = reinitialise_table(client.instance, table.name, removal.id)
        removal.acknowledge(result.number)


def _jobs_of_tables(client: Client) -> list[tuple[CreatedTable, Ingest]]:
    tables = {each.id: each for each in client.catalogue.active()}
    return [
        (tables[each.table_id], each)
        for each in client.journal.ingests.values()
        if each.table_id in tables
    ]


def _has_job(client: Client) -> bool:
    return bool(_jobs_of_tables(client))


@operation(3, _has_job)
def undo(client: Client) -> None:
    """Takes back what one of the last jobs added."""
    table, job = client.random.choice(_jobs_of_tables(client)[-8:])
    change = Other(
        id=client.new_id("undo"), table_id=table.id, kinds=("undo_job",), argument=job.id
    )
    client.journal.others[change.id] = change
    with answered(change):
        result = undo_job(client.instance, job.id, table.name, change.id)
        change.acknowledge(result.number)


@operation(3)
def change_fields(client: Client) -> None:
    """Adds, drops, renames, widens or orders value fields."""
    table = client.choose_table()
    opened = client.instance.table(table.name)
    with opened.state.reading() as state:
        schema, is_aggregating = state.schema, bool(state.processing.aggregations)
    change = _random_change(client, schema, is_aggregating)
    submission = Other(
        id=client.new_id("fields"), table_id=table.id, kinds=("change_schema",), argument=change
    )
    client.journal.others[submission.id] = submission
    with answered(submission):
        result = change_schema(client.instance, table.name, [change], submission.id)
        submission.acknowledge(result.number)


def _random_change(client: Client, schema: Schema, is_aggregating: bool) -> FieldChange:
    random = client.random
    chosen = random.choice(schema.values) if schema.values else None
    new_name = f"f{random.randrange(6)}"
    match random.randrange(5):
        case 1 if chosen is not None:
            return DropField(chosen.name)
        case 2 if chosen is not None:
            return RenameField(chosen.name, new_name)
        case 3 if chosen is not None:
            return WidenField(chosen.name, _WIDER.get(chosen.type, PrimitiveType.LONG))
        case 4:
            names = [each.name for each in schema.values]
            return OrderFields(tuple(random.sample(names, len(names))))
    default = None if is_aggregating else random.choice((None, 0, 7))
    field = Field(new_name, PrimitiveType.INT, default=default)
    aggregation = random.choice((AggregationOp.SUM, AggregationOp.MAX)) if is_aggregating else None
    return AddField(field, aggregation=aggregation)
