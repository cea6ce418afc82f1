"""Creation, changes and deletion of tables, and of holds and followers of their versions."""

import base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sleeper.admin.code import check_iterator, check_strategy
from sleeper.admin.enrichment import check_enrichment
from sleeper.admin.properties import describe_document, format_processing
from sleeper.errors import (
    ConflictError,
    DataError,
    InvalidRequestError,
    NotFoundError,
    classify_error,
    describe_error,
)
from sleeper.instance import Instance
from sleeper.partitions.partition import Partition, tree_from_split_points
from sleeper.processing.model import Processing, check_table_processing
from sleeper.processing.text import iterator_call, processing_to_json
from sleeper.properties.instance import DELETION_DELAY_HOURS, ORPHAN_AGE_DAYS
from sleeper.properties.table import (
    AGGREGATIONS,
    COMPACTION_STRATEGY,
    DEFAULT_AGGREGATIONS,
    DEFAULT_FILTERS,
    DEFAULT_ITERATOR_CLASS_NAME,
    DEFAULT_ITERATOR_CONFIG,
    DOCUMENT,
    FILTERS,
    INGEST_ENRICHMENT,
    ITERATOR_CLASS_NAME,
    ITERATOR_CONFIG,
    LATEST_BY,
    NAME,
    ONLINE,
    ROWS,
    SCHEMA,
    SPLITS_BASE64,
    SPLITS_FILE,
    TABLE_ID,
    TYPE,
    RowChoice,
    TableType,
)
from sleeper.properties.values import TableProperties, check_set_by_user, table_properties
from sleeper.schema.defaults import check_default
from sleeper.schema.document import with_document
from sleeper.schema.key_values import check_key_value
from sleeper.schema.latest_rows import LATEST, make_latest
from sleeper.schema.model import INT_RANGES, Field, PrimitiveType, Schema, schema_to_json
from sleeper.schema.user_json import parse_user_schema
from sleeper.statestore.fold import SNAPSHOT_TABLE
from sleeper.statestore.transactions.holds import (
    CreateFollower,
    DeleteFollower,
    check_follower_name,
)
from sleeper.statestore.transactions.table_definition import AcceptTime, InitialiseTable
from sleeper.systems import load, systems
from sleeper.tables import (
    TableRef,
    TableState,
    check_table_name,
    end_retention,
    find_deleted,
    list_deleted,
    mark_table_deleting,
    new_table_id,
    rename_table,
    restore_deleted,
    set_table_online,
)


def create_table(
    instance: Instance,
    name: str,
    schema_text: str,
    settings: Mapping[str, str] | None = None,
    split_points: Sequence[object] = (),
) -> TableRef:
    """Creates a table, which no other process sees before this returns.

    InvalidRequestError for an invalid schema, property or split point; ConflictError if the
    name exists. Garbage collection removes what an interrupted creation leaves.
    """
    check_table_name(name)
    schema = parse_user_schema(schema_text)
    for field in schema.fields:
        check_default(field)
    settings = dict(settings or {})
    check_set_by_user(settings)
    schema = with_document(schema, settings.get(DOCUMENT.name) or None)
    described = _describe_latest(schema) | describe_document(schema)
    settings = {**_default_processing(instance), **described, **settings}
    partitions = tuple(tree_from_split_points(schema, split_points))
    try:
        instance.tables.index.find(name)
    except NotFoundError:
        pass
    else:
        raise ConflictError(f"table {name!r} already exists")
    ref = TableRef(new_table_id(), name)
    values = {
        **settings,
        NAME.name: name,
        TABLE_ID.name: ref.id,
        SCHEMA.name: schema_to_json(replace(schema, latest=None)),
    }
    properties = table_properties(values, instance.properties())
    initialise = _check_definition(instance, schema, partitions, properties)
    ref = TableRef(ref.id, name, online=properties.get(ONLINE))
    instance.tables.create(ref.id)
    instance.tables.state(ref.id).commit_or_raise(initialise)
    instance.tables.properties.write(ref.id, properties)
    # The index entry makes the table visible.
    try:
        instance.tables.index.create(ref)
    except ConflictError:
        _check_not_abandoned(instance, ref)
        raise
    return ref


def _check_not_abandoned(instance: Instance, ref: TableRef) -> None:
    """Raises ConflictError if garbage collection has given up the creation of a table."""
    with suppress(NotFoundError):
        if instance.tables.index.get(ref.id).state is TableState.ABANDONED:
            raise ConflictError(
                f"the creation of table {ref.name!r} took so long that it was given up (repeat it)"
            )


def _check_definition(
    instance: Instance,
    schema: Schema,
    partitions: tuple[Partition, ...],
    properties: TableProperties,
) -> InitialiseTable:
    """Returns the first transaction of a table. InvalidRequestError as of `create_table`."""
    rows, by, name = properties.get(ROWS), properties.get(LATEST_BY) or None, properties.get(NAME)
    is_snapshot = properties.get(TYPE) is TableType.SNAPSHOT
    schema = replace(schema, latest=make_latest(rows.value, by))
    processing = Processing(
        properties.get(FILTERS),
        properties.get(AGGREGATIONS),
        iterator_call(properties.get(ITERATOR_CLASS_NAME), properties.get(ITERATOR_CONFIG)),
    )
    check_table_processing(processing, schema)
    if processing.iterator is not None:
        check_iterator(instance, name, schema, processing.iterator)
    check_strategy(instance, properties.get(COMPACTION_STRATEGY))
    check_enrichment(instance, name, schema, properties.get(INGEST_ENRICHMENT))
    return InitialiseTable(
        schema_to_json(replace(schema, latest=None)),
        partitions,
        processing_to_json(processing),
        orphan_age_days=instance.properties().get(ORPHAN_AGE_DAYS),
        rows=rows.value if rows is RowChoice.LATEST else None,
        latest_by=by,
        table_type=SNAPSHOT_TABLE if is_snapshot else None,
    )


def create_table_from_files(
    instance: Instance,
    name: str,
    schema: Path | Schema,
    settings: Mapping[str, str] | None = None,
    split_points_file: Path | None = None,
) -> TableProperties:
    """Creates a table from a schema or its file and a file of split points; returns its properties.

    The default file of split points is the table property `splits.file`. Errors name the file.
    """
    settings = dict(settings or {})
    if isinstance(schema, Schema):
        schema_text = schema_to_json(schema)
    else:
        schema_text, schema = _read_schema(schema)
    values = {name: value.strip() for name, value in settings.items() if value.strip()}
    points_file = split_points_file or SPLITS_FILE.parse(values.get(SPLITS_FILE.name, ""))
    points: list[int | str | bytes] = []
    if points_file:
        is_base64 = SPLITS_BASE64.parse(values.get(SPLITS_BASE64.name, "false"))
        points = read_split_points(schema, Path(points_file), is_base64)
    ref = create_table(instance, name, schema_text, settings, points)
    return instance.tables.properties.read(ref.id)


def rename(instance: Instance, old: str, new: str) -> None:
    """Renames a table."""
    ref = rename_table(instance.tables.index, old, new)
    instance.tables.properties.change(ref.id, {NAME.name: new})


def set_online(instance: Instance, name: str, online: bool) -> None:
    """Puts a table online or offline, where it is neither split nor compacted."""
    ref = set_table_online(instance.tables.index, name, online)
    instance.tables.properties.change(ref.id, {ONLINE.name: str(online).lower()})


def accept_time(instance: Instance, name: str) -> tuple[int, int]:
    """Sets the time of the table's log to the clock; returns the time before and after, in ms.

    A table without a commit for 30 days refuses commits until then.
    """
    store = instance.table(name).state
    with store.reading() as state:
        before_ms = state.time_ms
    store.commit_or_raise(AcceptTime(instance.clock()))
    with store.reading() as state:
        return before_ms, state.time_ms


def delete_table(instance: Instance, name: str, now: bool = False) -> TableRef:
    """Deletes a table: it is inaccessible at once, and garbage collection deletes its files later.

    With `now` it cannot be brought back, not even if it was deleted before; `name` may be the id of
    such a table. InvalidRequestError if a system needs it.
    """
    _check_unused(instance, name)
    index = instance.tables.index
    is_final = now or not instance.properties().get(DELETION_DELAY_HOURS)
    try:
        return mark_table_deleting(index, name, None if is_final else instance.clock())
    except NotFoundError:
        if not now or name not in {key for t in list_deleted(index) for key in (t.name, t.id)}:
            raise
        return end_retention(index, find_deleted(index, name))


def undelete_table(instance: Instance, name: str) -> TableRef:
    """Brings a deleted table back, by its name or id.

    NotFoundError if it is no deleted table, or its time has passed; ConflictError if another table
    has the name.
    """
    return restore_deleted(instance.tables.index, name)


def _check_unused(instance: Instance, name: str) -> None:
    """Raises InvalidRequestError if a system needs the table."""
    for system in systems():
        if system.check_deletion is None:
            continue
        # An unfinished clone, or a damaged table, can be deleted.
        with suppress(NotFoundError, DataError):
            load(system.check_deletion)(instance.table(name))


def release_hold(instance: Instance, table_name: str, hold_id: str) -> None:
    """Releases a hold. NotFoundError if the table has no such hold."""
    store = instance.table(table_name).state
    if hold_id not in {hold.id for hold in store.holds.all()}:
        raise NotFoundError(f"table {table_name!r} has no hold {hold_id!r}")
    store.release_hold(hold_id)


def create_follower(
    instance: Instance, table_name: str, follower: str, start: int | None = None
) -> int:
    """Creates a follower of changes after `start`; returns `start`, by default the newest version.

    ConflictError if the name exists; InvalidRequestError if it is invalid, or if the table no
    longer has all changes after `start`.
    """
    check_follower_name(follower)
    store = instance.table(table_name).state
    if follower in {f.name for f in store.followers()}:
        raise ConflictError(f"table {table_name!r} already has a follower {follower!r}")
    with store.reading() as state:
        version = int(state.number) if start is None else start
        state.check_changes_after(version)
    store.commit_or_raise(CreateFollower(follower, version))
    return version


def delete_follower(instance: Instance, table_name: str, follower: str) -> None:
    """Deletes a follower. NotFoundError if the table has no such follower."""
    store = instance.table(table_name).state
    if follower not in {f.name for f in store.followers()}:
        raise NotFoundError(f"table {table_name!r} has no follower {follower!r}")
    check_follower_name(follower)
    store.commit_or_raise(DeleteFollower(follower))


def _describe_latest(schema: Schema) -> dict[str, str]:
    """Returns the properties of the choice of rows that a schema of another table has."""
    if schema.latest is None:
        return {}
    by = {} if schema.latest.by is None else {LATEST_BY.name: schema.latest.by}
    return {ROWS.name: LATEST, **by}


def _default_processing(instance: Instance) -> dict[str, str]:
    properties = instance.properties()
    iterator = properties.get(DEFAULT_ITERATOR_CLASS_NAME)
    return format_processing(
        Processing(
            properties.get(DEFAULT_FILTERS),
            properties.get(DEFAULT_AGGREGATIONS),
            iterator_call(iterator, properties.get(DEFAULT_ITERATOR_CONFIG) if iterator else ""),
        )
    )


def read_text(path: Path, noun: str) -> str:
    """Reads a UTF-8 file of a user. InvalidRequestError names it as `noun` if it is unreadable."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise classify_error(
            error, f"{noun} {path} cannot be read: {describe_error(error)}", InvalidRequestError
        ) from error


def read_schema_file(path: Path) -> Schema:
    """Reads the schema of a file of a user. InvalidRequestError names the file."""
    return _read_schema(path)[1]


def _read_schema(path: Path) -> tuple[str, Schema]:
    text = read_text(path, "schema file")
    try:
        return text, parse_user_schema(text)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"schema file {path}: {error}") from error


def read_split_points(
    schema: Schema, path: Path, is_base64: bool = False
) -> list[int | str | bytes]:
    """Reads split points from a file; `parse_split_points` describes the format."""
    text = read_text(path, "split points file")
    return parse_split_points(schema, text, f"split points file {path}", is_base64)


def parse_split_points(
    schema: Schema, text: str, where: str, is_base64: bool = False
) -> list[int | str | bytes]:
    """Parses one split point per line; byte arrays, and strings if `is_base64`, are base64.

    Times, dates, booleans and decimals stay text, which `check_key_value` accepts.
    """
    field = schema.row_keys[0]
    points: list[int | str | bytes] = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            points.append(_parse_split_point(line, field, is_base64))
        except (ValueError, InvalidRequestError) as error:
            raise InvalidRequestError(
                f"{where}, line {number}: invalid value of field {field.name!r}: {line!r}: {error}"
            ) from error
    return points


def _parse_split_point(line: str, field: Field, is_base64: bool) -> int | str | bytes:
    if field.type in INT_RANGES:
        return int(line)
    if field.type is PrimitiveType.BYTE_ARRAY:
        return base64.b64decode(line, validate=True)
    if field.type is not PrimitiveType.STRING:
        check_key_value(field, line)
        return line
    return base64.b64decode(line, validate=True).decode() if is_base64 else line
