"""Changes of the value fields of a table from Python."""

from collections.abc import Sequence

from sleeper.admin.schema import SchemaChange, change_schema
from sleeper.api.argument_types import check_argument_types
from sleeper.api.field_conversion import convert_field
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance as Ports
from sleeper.processing.field_changes import (
    AddField,
    DropField,
    FieldChange,
    OrderFields,
    RenameField,
    WidenField,
)
from sleeper.processing.text import parse_operation
from sleeper.schema.model import Default, Field, FieldType
from sleeper.schema.type_text import parse_type


@check_argument_types
class TableFields:
    """The methods of `Table` that change its value fields."""

    _instance: Ports
    name: str

    def add_field(
        self,
        name: str,
        field_type: FieldType | str,
        default: Default | None = None,
        after: str | None = None,
        aggregation: str | None = None,
        change_id: str | None = None,
    ) -> SchemaChange:
        """Adds a nullable value field, in one transaction. No file is rewritten.

        `field_type` is a type of `sleeper.schema.model`, or its name, such as `"LongType"` or
        `"DecimalType(9,2)"`. Rows of earlier files have the `default` in the field, `None` for
        null: a number, text or truth value; text for decimals, times and dates, base64 for byte
        arrays. `after` is the name of the field before it. A table that aggregates requires an
        `aggregation`, such as `"sum"`. `change_id` makes the call idempotent: a repeated call
        with the id of an earlier one, within 30 days, changes nothing. The result has the
        `number` of the transaction and the new `schema`.

        Raises `InvalidRequestError` if the field cannot be added, and `ConflictError` if the id
        was used for another change. After `UnavailableError` repeat the call with the id in the
        error's message.
        """
        kind = _check_type(field_type)
        field = Field(name, kind, default=default)
        operation = None if aggregation is None else parse_operation(aggregation)
        return self._change(AddField(field, after, operation), change_id)

    def drop_field(self, name: str, change_id: str | None = None) -> SchemaChange:
        """Removes a value field, in one transaction; otherwise like `add_field`.

        Queries as of an earlier transaction still return its values.
        """
        return self._change(DropField(name), change_id)

    def rename_field(self, name: str, new_name: str, change_id: str | None = None) -> SchemaChange:
        """Renames a value field, in the table's filters and aggregations too, as `add_field`."""
        return self._change(RenameField(name, new_name), change_id)

    def widen_field(
        self, name: str, field_type: FieldType | str, change_id: str | None = None
    ) -> SchemaChange:
        """Changes the type of a value field to a wider one; otherwise like `add_field`.

        IntType becomes LongType, FloatType becomes DoubleType, a DecimalType gets more digits.
        """
        kind = _check_type(field_type)
        return self._change(WidenField(name, kind), change_id)

    def convert_field(
        self, name: str, field_type: FieldType | str, change_id: str | None = None
    ) -> SchemaChange:
        """Makes a value field of text JSON, or one of JSON text; otherwise like `add_field`.

        `"JSONType"` reads the text of all rows. `InvalidRequestError` names the first rows that are
        not JSON, with their keys; nothing is changed. If rows are added or deleted meanwhile, they
        are read again, and after a few times `ConflictError` is raised: pause the ingests.
        `"StringType"` is the way back.
        """
        kind = _check_type(field_type)
        return convert_field(self._instance, self.name, name, kind, change_id)

    def order_fields(self, names: Sequence[str], change_id: str | None = None) -> SchemaChange:
        """Orders the value fields, all of which are named; otherwise like `add_field`."""
        return self._change(OrderFields(tuple(names)), change_id)

    def _change(self, change: FieldChange, change_id: str | None) -> SchemaChange:
        return change_schema(self._instance, self.name, (change,), change_id)


def _check_type(kind: object) -> FieldType:
    if isinstance(kind, str):
        return parse_type(kind)
    if isinstance(kind, FieldType):
        return kind
    raise InvalidRequestError(
        f"field type {kind!r:.100} is {type(kind).__name__} (expected a field type or its name)"
    )
