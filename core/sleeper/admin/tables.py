"""Tables of an instance: made, changed and deleted."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path

from sleeper.admin.code import check_iterator, check_strategy
from sleeper.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    classify_error,
    describe_error,
)
from sleeper.instance import Instance, OpenTable
from sleeper.partitions.partition import tree_from_split_points
from sleeper.processing.check import check_table_processing
from sleeper.processing.model import Processing
from sleeper.processing.text import (
    format_aggregations,
    format_filters,
    iterator_call,
    processing_to_json,
)
from sleeper.properties.engine import ORPHAN_AGE_DAYS
from sleeper.properties.table import (
    AGGREGATIONS,
    COMPACTION_STRATEGY,
    DEFAULT_AGGREGATIONS,
    DEFAULT_FILTERS,
    DEFAULT_ITERATOR_CLASS_NAME,
    DEFAULT_ITERATOR_CONFIG,
    FILTERS,
    ITERATOR_CLASS_NAME,
    ITERATOR_CONFIG,
    NAME,
    ONLINE,
    SCHEMA,
    SPLITS_BASE64,
    SPLITS_FILE,
    TABLE_ID,
)
from sleeper.properties.values import TableProperties, check_set_by_user, declared, table_properties
from sleeper.schema.json import schema_from_json, schema_to_json
from sleeper.schema.model import INT_RANGES, KeyValue, PrimitiveType, Schema
from sleeper.statestore.transactions.log_time import AcceptTime
from sleeper.statestore.transactions.table_definition import ChangeProcessing, InitialiseTable
from sleeper.tables.table_index import mark_table_deleting, rename_table, set_table_online
from sleeper.tables.table_ref import TableRef, check_table_name, new_table_id

_PROCESSING = (FILTERS.name, AGGREGATIONS.name, ITERATOR_CLASS_NAME.name, ITERATOR_CONFIG.name)
_PUBLISHED_COPIES = (NAME.name, ONLINE.name, SCHEMA.name)


def create_table(
    instance: Instance,
    name: str,
    schema_text: str,
    settings: Mapping[str, str] | None = None,
    split_points: Sequence[object] = (),
) -> TableRef:
    """Makes a table; it is there for everyone when this returns, and not at all before.

    InvalidRequestError for a wrong schema, property or split point; ConflictError if the
    name is taken. A creation that dies leaves nothing that a person must clear.
    """
    check_table_name(name)
    schema = schema_from_json(schema_text)
    settings = dict(settings or {})
    check_set_by_user(settings)
    settings = {**_processing_of_new_tables(instance), **settings}
    partitions = tuple(tree_from_split_points(schema, split_points))
    _refuse_taken_name(instance, name)
    ref = TableRef(new_table_id(), name)
    values = {
        **settings,
        NAME.name: name,
        TABLE_ID.name: ref.id,
        SCHEMA.name: schema_to_json(schema),
    }
    properties = table_properties(values, instance.properties())
    processing = _processing_of(properties)
    check_table_processing(processing, schema)
    if processing.iterator is not None:
        check_iterator(instance, name, schema, processing.iterator)
    check_strategy(instance, properties.get(COMPACTION_STRATEGY))
    ref = TableRef(ref.id, name, online=properties.get(ONLINE))
    instance.tables.create(ref.id)
    instance.tables.state(ref.id).commit_or_raise(
        InitialiseTable(
            schema_to_json(schema),
            partitions,
            processing_to_json(processing),
            orphan_age_days=instance.properties().get(ORPHAN_AGE_DAYS),
        )
    )
    instance.tables.properties.write(ref.id, properties)
    # From here on it is a table.
    instance.tables.index.create(ref)
    return ref


def create_table_from_files(
    instance: Instance,
    name: str,
    schema_file: Path,
    settings: Mapping[str, str] | None = None,
    split_points_file: Path | None = None,
) -> TableProperties:
    """Makes a table from a schema file and, if there is one, a file of split points.

    Without one, the table property `splits.file` names it. Errors name the file that is
    wrong. Answers with the table's properties.
    """
    settings = dict(settings or {})
    schema_text, schema = _read_schema(schema_file)
    values = {name: value.strip() for name, value in settings.items() if value.strip()}
    points_file = split_points_file or SPLITS_FILE.parse(values.get(SPLITS_FILE.name, ""))
    points: list[KeyValue] = []
    if points_file:
        is_base64 = SPLITS_BASE64.parse(values.get(SPLITS_BASE64.name, "false"))
        points = read_split_points(schema, Path(points_file), is_base64)
    ref = create_table(instance, name, schema_text, settings, points)
    return instance.tables.properties.read(ref.id)


def rename(instance: Instance, old: str, new: str) -> None:
    """Gives the table a new name."""
    ref = rename_table(instance.tables.index, old, new)
    instance.tables.properties.change(ref.id, {NAME.name: new})


def set_online(instance: Instance, name: str, online: bool) -> None:
    """Puts the table online or offline: offline ones are neither split nor compacted."""
    ref = set_table_online(instance.tables.index, name, online)
    instance.tables.properties.change(ref.id, {ONLINE.name: str(online).lower()})


def accept_time(instance: Instance, name: str) -> tuple[int, int]:
    """Moves the time of the table's log to the clock's; returns both, in ms.

    For a clock that is right, of a table that had no commit for so long that commits are refused.
    """
    store = instance.table(name).state
    with store.reading() as state:
        before_ms = state.time_ms
    store.commit_or_raise(AcceptTime(instance.clock()))
    with store.reading() as state:
        return before_ms, state.time_ms


def delete_table(instance: Instance, name: str) -> None:
    """Begins the table's deletion: it is gone for everyone at once, its files by and by."""
    mark_table_deleting(instance.tables.index, name)


def set_table_properties(
    instance: Instance, name: str, changes: Mapping[str, str]
) -> TableProperties:
    """Sets properties of a table; an empty value unsets one. Answers with all of them after."""
    check_set_by_user(changes)
    for copy in _PUBLISHED_COPIES:
        if copy in changes:
            raise InvalidRequestError(
                f"property {copy} cannot be set: use `sleeper table rename`, "
                "`online` or `offline` (a schema cannot be changed)"
            )
    table = instance.table(name)
    after = table.properties().with_values(changes)  # refused here, if one is wrong
    if COMPACTION_STRATEGY.name in changes:
        check_strategy(instance, after.get(COMPACTION_STRATEGY))
    if changes.keys().isdisjoint(_PROCESSING):
        return instance.tables.properties.change(table.ref.id, changes)
    published = _change_processing(table, changes, after)
    return instance.tables.properties.change(table.ref.id, {**changes, **published})


def _change_processing(
    table: OpenTable, changes: Mapping[str, str], after: TableProperties
) -> dict[str, str]:
    """Commits it to the table's log; answers with what to publish."""
    iterator, config = (changes.get(p.name) for p in (ITERATOR_CLASS_NAME, ITERATOR_CONFIG))
    change = ChangeProcessing(
        changes.get(FILTERS.name),
        changes.get(AGGREGATIONS.name),
        None if iterator is None else after.get(ITERATOR_CLASS_NAME) or "",
        None if config is None else config.strip(),
    )
    with table.state.reading() as state:
        schema, call = state.schema, change.after(state.processing).iterator
    if call is not None and (iterator, config) != (None, None):
        check_iterator(table.instance, table.ref.name, schema, call)
    (outcome,) = table.state.commit(change)
    if outcome.refused:
        raise InvalidRequestError(outcome.reason)
    with table.state.reading() as state:
        return _published(state.processing)


def _processing_of(properties: TableProperties) -> Processing:
    return Processing(
        properties.get(FILTERS),
        properties.get(AGGREGATIONS),
        iterator_call(properties.get(ITERATOR_CLASS_NAME), properties.get(ITERATOR_CONFIG)),
    )


def _processing_of_new_tables(instance: Instance) -> dict[str, str]:
    properties = instance.properties()
    iterator = properties.get(DEFAULT_ITERATOR_CLASS_NAME)
    return _published(
        Processing(
            properties.get(DEFAULT_FILTERS),
            properties.get(DEFAULT_AGGREGATIONS),
            iterator_call(iterator, properties.get(DEFAULT_ITERATOR_CONFIG) if iterator else ""),
        )
    )


def _published(processing: Processing) -> dict[str, str]:
    """The properties that say so; empty where there is nothing."""
    return {
        FILTERS.name: format_filters(processing.filters),
        AGGREGATIONS.name: format_aggregations(processing.aggregations),
        ITERATOR_CLASS_NAME.name: processing.iterator.name if processing.iterator else "",
        ITERATOR_CONFIG.name: processing.iterator.config if processing.iterator else "",
    }


def get_table_property(instance: Instance, name: str, property_name: str) -> str:
    """The property's value as it is in force, as text; empty if it is unset."""
    declaration = declared(property_name)
    properties = instance.table(name).properties()
    value = properties.get(declaration)
    return "" if value is None else declaration.kind.format(value)


def _read_schema(path: Path) -> tuple[str, Schema]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise classify_error(
            error,
            f"schema file {path} cannot be read: {describe_error(error)}",
            InvalidRequestError,
        ) from error
    try:
        return text, schema_from_json(text)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"schema file {path}: {error}") from error


def read_split_points(schema: Schema, path: Path, is_base64: bool = False) -> list[KeyValue]:
    """The split points of a file, as `parse_split_points` reads them."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise classify_error(
            error,
            f"split points file {path} cannot be read: {describe_error(error)}",
            InvalidRequestError,
        ) from error
    return parse_split_points(schema, text, f"split points file {path}", is_base64)


def parse_split_points(
    schema: Schema, text: str, where: str, is_base64: bool = False
) -> list[KeyValue]:
    """One split point a line; byte arrays are base64, strings too if the caller says so."""
    field = schema.row_keys[0]
    points: list[KeyValue] = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            points.append(_split_point(line, field.type, is_base64))
        except (ValueError, binascii.Error) as error:
            raise InvalidRequestError(
                f"{where}, line {number}: invalid value of field {field.name!r}: {line!r}: {error}"
            ) from error
    return points


def _split_point(line: str, kind: object, is_base64: bool) -> KeyValue:
    if kind in INT_RANGES:
        return int(line)
    if kind is PrimitiveType.BYTE_ARRAY:
        return base64.b64decode(line, validate=True)
    return base64.b64decode(line, validate=True).decode() if is_base64 else line


def _refuse_taken_name(instance: Instance, name: str) -> None:
    try:
        instance.tables.index.by_name(name)
    except NotFoundError:
        return
    raise ConflictError(f"table {name!r} exists already")
