"""Reads and changes of properties of an instance and of its tables."""

from collections.abc import Mapping

from sleeper.admin.code import check_default_names, check_iterator, check_strategy
from sleeper.admin.enrichment import check_enrichment
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance, OpenTable
from sleeper.processing.model import Processing
from sleeper.processing.text import format_aggregations, format_filters
from sleeper.properties.declaration import Scope
from sleeper.properties.table import (
    AGGREGATIONS,
    COMPACTION_STRATEGY,
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
    TYPE,
)
from sleeper.properties.values import TableProperties, check_set_by_user, declared, is_ignored
from sleeper.reports.properties import (
    ChangesReport,
    PropertiesReport,
    collect_warnings,
    gather_instance_properties,
    gather_table_properties,
)
from sleeper.schema.model import Schema
from sleeper.statestore.transactions.table_definition import ChangeProcessing

_PROCESSING = (FILTERS.name, AGGREGATIONS.name, ITERATOR_CLASS_NAME.name, ITERATOR_CONFIG.name)
_PUBLISHED_COPIES = (NAME.name, ONLINE.name, SCHEMA.name)


def report_instance_properties(instance: Instance) -> PropertiesReport:
    """Returns the effective values of all properties of the instance."""
    return gather_instance_properties(instance.properties(), instance.where)


def report_table_properties(instance: Instance, name: str) -> PropertiesReport:
    """Returns the effective values of all properties of a table."""
    return gather_table_properties(instance.table(name).properties(), name)


def get_instance_property(instance: Instance, property_name: str) -> str:
    """Returns the effective value of a property as text; empty if it is unset.

    An ignored property of gchq/sleeper has the value that was set.
    """
    if is_ignored(property_name):
        return instance.properties().values.get(property_name, "")
    declaration = declared(property_name)
    if declaration.scope is not Scope.INSTANCE:
        raise InvalidRequestError(
            f"property {property_name} is a table property (expected an instance property)"
        )
    value = instance.properties().get(declaration)
    return "" if value is None else declaration.kind.format(value)


def get_table_property(instance: Instance, name: str, property_name: str) -> str:
    """Returns the effective value of a property as text; empty if it is unset.

    An ignored property of gchq/sleeper has the value that was set.
    """
    if is_ignored(property_name):
        return instance.table(name).properties().values.get(property_name, "")
    declaration = declared(property_name)
    value = instance.table(name).properties().get(declaration)
    return "" if value is None else declaration.kind.format(value)


def change_instance_properties(instance: Instance, changes: Mapping[str, str]) -> ChangesReport:
    """Sets properties of the instance and reports the changes; an empty value unsets a property."""
    check_set_by_user(changes)
    before = report_instance_properties(instance)
    check_default_names(instance, changes)
    after = instance.change_properties(changes)
    return ChangesReport(
        tuple(changes),
        before,
        gather_instance_properties(after, instance.where),
        collect_warnings(changes, after),
    )


def change_table_properties(
    instance: Instance, name: str, changes: Mapping[str, str]
) -> ChangesReport:
    """Sets properties of a table and reports the changes; an empty value unsets a property."""
    before = report_table_properties(instance, name)
    after = set_table_properties(instance, name, changes)
    return ChangesReport(
        tuple(changes),
        before,
        gather_table_properties(after, name),
        collect_warnings(changes, after),
    )


def set_table_properties(
    instance: Instance, name: str, changes: Mapping[str, str]
) -> TableProperties:
    """Sets properties of a table and returns all of them; an empty value unsets a property."""
    check_set_by_user(changes)
    for copy in _PUBLISHED_COPIES:
        if copy in changes:
            raise InvalidRequestError(
                f"property {copy} cannot be set: use `sleeper table rename`, `online`, "
                "`offline` or `add-field` and other commands for fields"
            )
    for fixed in (ROWS.name, LATEST_BY.name):
        if fixed in changes:
            raise InvalidRequestError(
                f"property {fixed} cannot be set: it is chosen when a table is created, because "
                "compactions may have dropped rows by it"
            )
    if DOCUMENT.name in changes:
        raise InvalidRequestError(
            f"property {DOCUMENT.name} cannot be set: it is chosen when a table is created"
        )
    if TYPE.name in changes:
        raise InvalidRequestError(
            f"property {TYPE.name} cannot be set: it is chosen when a table is created"
        )
    table = instance.table(name)
    after = table.properties().with_values(changes)  # rejects invalid values
    if COMPACTION_STRATEGY.name in changes:
        check_strategy(instance, after.get(COMPACTION_STRATEGY))
    if INGEST_ENRICHMENT.name in changes:
        with table.state.reading() as state:
            schema = state.schema
        check_enrichment(instance, name, schema, after.get(INGEST_ENRICHMENT))
    if changes.keys().isdisjoint(_PROCESSING):
        return instance.tables.properties.change(table.ref.id, changes)
    published = _change_processing(table, changes, after)
    return instance.tables.properties.change(table.ref.id, {**changes, **published})


def _change_processing(
    table: OpenTable, changes: Mapping[str, str], after: TableProperties
) -> dict[str, str]:
    """Commits the change to the table's log; returns the properties that publish it."""
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
        return format_processing(state.processing)


def describe_document(schema: Schema) -> dict[str, str]:
    """Returns the property with the name of the document, which is empty without one."""
    return {DOCUMENT.name: "" if schema.document is None else schema.document.name}


def format_processing(processing: Processing) -> dict[str, str]:
    """Returns the table properties that publish the processing; absent parts are empty."""
    return {
        FILTERS.name: format_filters(processing.filters),
        AGGREGATIONS.name: format_aggregations(processing.aggregations),
        ITERATOR_CLASS_NAME.name: processing.iterator.name if processing.iterator else "",
        ITERATOR_CONFIG.name: processing.iterator.config if processing.iterator else "",
    }
