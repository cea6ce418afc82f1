"""`sleeper table add-field` and other commands that change the fields of a table."""

from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import TableName
from sleeper.cli.output import instance_command, note
from sleeper.processing.model import AggregationOp

if TYPE_CHECKING:
    from sleeper.admin.schema import SchemaChange
    from sleeper.instance import Instance
    from sleeper.processing.field_changes import FieldChange

FieldName = Annotated[str, typer.Argument(metavar="FIELD", help="Name of the field.")]
TypeName = Annotated[
    str,
    typer.Argument(
        metavar="TYPE", help="Type of the field, such as LongType or 'DecimalType(9,2)'."
    ),
]
ChangeId = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="ID",
        help="Id of the change. A repeated change with the same id changes nothing.",
    ),
]


@instance_command
def add_field(
    instance: "Instance",
    name: TableName,
    field: FieldName,
    field_type: TypeName,
    default: Annotated[
        str | None,
        typer.Option(
            "--default",
            metavar="VALUE",
            help="The value of rows that were written without the field. The default is null.",
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            "--after", metavar="FIELD", help="The field before it. The default is the last field."
        ),
    ] = None,
    aggregation: Annotated[
        AggregationOp | None,
        typer.Option("--aggregation", help="The operation of the field in an aggregating table."),
    ] = None,
    change_id: ChangeId = None,
) -> None:
    """Add a nullable value field, in one transaction.

    No file is rewritten. Rows of earlier files have the default in the new field.

    \b
    Examples:
      sleeper table add-field flights delay IntType
      sleeper table add-field flights source StringType --default radar --after carrier
    """
    from sleeper.processing.field_changes import AddField
    from sleeper.schema.defaults import parse_default
    from sleeper.schema.model import Field
    from sleeper.schema.type_text import parse_type

    kind = parse_type(field_type)
    value = None if default is None else parse_default(kind, default)
    change = AddField(Field(field, kind, default=value), after, aggregation)
    _change(instance, name, change, change_id, f"added field {field} to {name}")


@instance_command
def drop_field(
    instance: "Instance", name: TableName, field: FieldName, change_id: ChangeId = None
) -> None:
    """Remove a value field, in one transaction.

    Its values stay in files until compactions rewrite them. Queries as of an earlier transaction
    still return them.

    \b
    Example:
      sleeper table drop-field flights delay
    """
    from sleeper.processing.field_changes import DropField

    _change(instance, name, DropField(field), change_id, f"dropped field {field} of {name}")


@instance_command
def rename_field(
    instance: "Instance",
    name: TableName,
    field: FieldName,
    new_name: Annotated[str, typer.Argument(metavar="NEW", help="New name of the field.")],
    change_id: ChangeId = None,
) -> None:
    """Rename a value field, in one transaction.

    The table's filters and aggregations get the new name too.

    \b
    Example:
      sleeper table rename-field flights delay arrival_delay
    """
    from sleeper.processing.field_changes import RenameField

    done = f"renamed field {field} of {name} to {new_name}"
    _change(instance, name, RenameField(field, new_name), change_id, done)


@instance_command
def widen_field(
    instance: "Instance",
    name: TableName,
    field: FieldName,
    field_type: TypeName,
    change_id: ChangeId = None,
) -> None:
    """Change the type of a value field to a wider one, in one transaction.

    IntType becomes LongType, FloatType becomes DoubleType, and a DecimalType gets more digits.

    \b
    Examples:
      sleeper table widen-field flights delay LongType
      sleeper table widen-field flights price 'DecimalType(12,2)'
    """
    from sleeper.processing.field_changes import WidenField
    from sleeper.schema.type_text import parse_type

    change = WidenField(field, parse_type(field_type))
    _change(instance, name, change, change_id, f"widened field {field} of {name} to {field_type}")


@instance_command
def convert_field(
    instance: "Instance",
    name: TableName,
    field: FieldName,
    field_type: TypeName,
    change_id: ChangeId = None,
) -> None:
    """Make a value field of text JSON, or one of JSON text, in one transaction.

    For JSONType the text of all rows is read, and nothing is changed if some of it is not JSON.
    Ingests that began before are refused, and their jobs are repeated. StringType is the way back.

    \b
    Examples:
      sleeper table convert-field flights crew JSONType
      sleeper table convert-field flights crew StringType
    """
    from sleeper.api.field_conversion import convert_field
    from sleeper.schema.type_text import parse_type

    result = convert_field(instance, name, field, parse_type(field_type), change_id)
    _report(result, name, f"converted field {field} of {name} to {field_type}")


@instance_command
def order_fields(
    instance: "Instance",
    name: TableName,
    fields: Annotated[
        list[str], typer.Argument(metavar="FIELD...", help="All value fields, in their new order.")
    ],
    change_id: ChangeId = None,
) -> None:
    """Order the value fields, in one transaction.

    \b
    Example:
      sleeper table order-fields flights carrier delay source
    """
    from sleeper.processing.field_changes import OrderFields

    _change(instance, name, OrderFields(tuple(fields)), change_id, f"ordered the fields of {name}")


def _change(
    instance: "Instance", name: str, change: "FieldChange", change_id: str | None, done: str
) -> None:
    from sleeper.admin.schema import change_schema

    _report(change_schema(instance, name, (change,), change_id), name, done)


def _report(result: "SchemaChange", name: str, done: str) -> None:
    if not result.already_done:
        note(f"{done}: transaction {result.number} (change {result.id})")
    elif result.number is None:
        note(f"nothing to change: the fields of {name} have this order")
    else:
        note(f"change {result.id} is already done: transaction {result.number}")
