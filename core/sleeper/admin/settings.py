"""Properties of an instance and of its tables: read and changed."""

from collections.abc import Mapping

from sleeper.admin.code import check_default_names
from sleeper.admin.tables import set_table_properties
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.properties.declaration import Scope
from sleeper.properties.values import check_set_by_user, declared
from sleeper.reports.properties import (
    ChangesReport,
    PropertiesReport,
    collect_warnings,
    gather_instance_properties,
    gather_table_properties,
)


def report_instance_properties(instance: Instance) -> PropertiesReport:
    """All properties of the instance, as they are in force."""
    return gather_instance_properties(instance.properties(), instance.where)


def report_table_properties(instance: Instance, name: str) -> PropertiesReport:
    """All properties of the table, as they are in force."""
    return gather_table_properties(instance.table(name).properties(), name)


def get_instance_property(instance: Instance, property_name: str) -> str:
    """The property's value as it is in force, as text; empty if it is unset."""
    declaration = declared(property_name)
    if declaration.scope is not Scope.INSTANCE:
        raise InvalidRequestError(
            f"property {property_name} is a table property (expected an instance property)"
        )
    value = instance.properties().get(declaration)
    return "" if value is None else declaration.kind.format(value)


def change_instance_properties(instance: Instance, changes: Mapping[str, str]) -> ChangesReport:
    """Sets properties of the instance; an empty value unsets one."""
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
    """Sets properties of a table; an empty value unsets one."""
    before = report_table_properties(instance, name)
    after = set_table_properties(instance, name, changes)
    return ChangesReport(
        tuple(changes),
        before,
        gather_table_properties(after, name),
        collect_warnings(changes, after),
    )
