"""Changes of a table's schema, each by the ids of its fields.

A field keeps its id when it is renamed, widened, converted or moved, and an id is never used again.
So the columns of a file are found in every later schema.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from sleeper.errors import InvalidRequestError
from sleeper.json_codec import Conversion, JsonCodec, Member, MismatchError
from sleeper.processing.model import Aggregation, AggregationOp, Processing
from sleeper.schema.defaults import check_default
from sleeper.schema.model import (
    DecimalType,
    Field,
    FieldType,
    PrimitiveType,
    Schema,
    StoredType,
    type_name,
)


@dataclass(frozen=True, slots=True)
class TableShape:
    """A schema with the processing of its fields. No field has had an id above `last_id`."""

    schema: Schema
    processing: Processing
    last_id: int

    def with_values(self, values: Iterable[Field]) -> "TableShape":
        """Returns the shape with other value fields. InvalidRequestError if names repeat."""
        return replace(self, schema=replace(self.schema, values=tuple(values)))


def table_shape(schema: Schema, earlier: Iterable[Schema], processing: Processing) -> TableShape:
    """Returns the shape of a table whose earlier schemas are known."""
    ids = (field.id for each in (schema, *earlier) for field in each.fields)
    return TableShape(schema, processing, max(ids))


@dataclass(frozen=True, slots=True)
class FieldChange(ABC):
    """One change of the value fields of a table."""

    kind: ClassVar[str]

    @abstractmethod
    def apply(self, shape: TableShape) -> TableShape:
        """Returns the changed shape. InvalidRequestError if the change cannot be made."""


@dataclass(frozen=True, slots=True)
class AddField(FieldChange):
    """Adds a nullable field, after the named one, last if none is named.

    Rows of earlier files have its default, or null. A table that aggregates needs an operation.
    """

    kind: ClassVar[str] = "add"
    field: Field
    after: Annotated[str | None, Member(optional=True)] = None
    aggregation: Annotated[AggregationOp | None, Member(optional=True)] = None

    def apply(self, shape: TableShape) -> TableShape:
        schema, name = shape.schema, self.field.name
        _check_name_free(schema, name)
        aggregations = shape.processing.aggregations
        if self.aggregation is not None and schema.values and not aggregations:
            raise InvalidRequestError(
                f"field {name!r} cannot have the aggregation {self.aggregation.value}: the table "
                "does not aggregate (expected none)"
            )
        if self.aggregation is not None:
            aggregations += (Aggregation(self.aggregation, name),)
        if aggregations and self.field.default is not None:
            raise InvalidRequestError(
                f"field {name!r} cannot have a default, {self.field.default!r}, in a table that "
                "aggregates: rows that were combined before would count once (expected none)"
            )
        new = replace(self.field, nullable=True, id=shape.last_id + 1)
        new = replace(new, default=check_default(new))
        position = len(schema.values)
        if self.after is not None:
            before = schema.field(self.after)
            position = schema.values.index(before) + 1 if before in schema.values else 0
        values = (*schema.values[:position], new, *schema.values[position:])
        processing = replace(shape.processing, aggregations=aggregations)
        return replace(shape, processing=processing, last_id=new.id).with_values(values)


@dataclass(frozen=True, slots=True)
class DropField(FieldChange):
    """Removes a field. Its values stay in the files, and are seen as of earlier versions."""

    kind: ClassVar[str] = "drop"
    name: Annotated[str, Member("field")]

    def apply(self, shape: TableShape) -> TableShape:
        dropped = _value_field(shape.schema, self.name, "dropped")
        for each in shape.processing.filters:
            if each.field == self.name:
                raise InvalidRequestError(
                    f"field {self.name!r} cannot be dropped: the table's filter "
                    f"{each.name}({self.name}) needs it"
                )
        for aggregation in shape.processing.aggregations:
            if aggregation.field == self.name:
                raise InvalidRequestError(
                    f"field {self.name!r} cannot be dropped: the table's aggregation "
                    f"{aggregation.op.value}({self.name}) needs it"
                )
        return shape.with_values(each for each in shape.schema.values if each != dropped)


@dataclass(frozen=True, slots=True)
class RenameField(FieldChange):
    """Renames a field, in the table's filters and aggregations too."""

    kind: ClassVar[str] = "rename"
    name: Annotated[str, Member("field")]
    new_name: Annotated[str, Member("to")]

    def apply(self, shape: TableShape) -> TableShape:
        renamed = _value_field(shape.schema, self.name, "renamed")
        _check_name_free(shape.schema, self.new_name)
        processing = replace(
            shape.processing,
            filters=tuple(
                replace(each, field=self.new_name) if each.field == self.name else each
                for each in shape.processing.filters
            ),
            aggregations=tuple(
                replace(each, field=self.new_name) if each.field == self.name else each
                for each in shape.processing.aggregations
            ),
        )
        new = replace(renamed, name=self.new_name)
        values = (new if each == renamed else each for each in shape.schema.values)
        return replace(shape, processing=processing).with_values(values)


@dataclass(frozen=True, slots=True)
class WidenField(FieldChange):
    """Changes a field's type to one that holds every value of the old one."""

    kind: ClassVar[str] = "widen"
    name: Annotated[str, Member("field")]
    type: StoredType

    def apply(self, shape: TableShape) -> TableShape:
        before = _value_field(shape.schema, self.name, "widened")
        if not _is_wider(before.type, self.type):
            raise InvalidRequestError(
                f"field {self.name!r} cannot become {type_name(self.type)}: it is "
                f"{type_name(before.type)}, {_describe_wider(before.type)}"
            )
        for aggregation in shape.processing.aggregations:
            if aggregation.field == self.name:
                raise InvalidRequestError(
                    f"field {self.name!r} cannot be widened: rows were combined by the table's "
                    f"aggregation {aggregation.op.value}({self.name}) as {type_name(before.type)}"
                )
        new = replace(before, type=self.type)
        return shape.with_values(new if each == before else each for each in shape.schema.values)


@dataclass(frozen=True, slots=True)
class ConvertField(FieldChange):
    """Makes text JSON, or JSON text. The values stay as they are.

    `checked` is the version in which all text of the field was read and is JSON. Text becomes JSON
    only if no row was added since.
    """

    kind: ClassVar[str] = "convert"
    name: Annotated[str, Member("field")]
    type: StoredType
    checked: Annotated[int | None, Member(optional=True)] = None

    def apply(self, shape: TableShape) -> TableShape:
        before = _value_field(shape.schema, self.name, "converted")
        if (before.type, self.type) not in _CONVERSIONS:
            raise InvalidRequestError(
                f"field {self.name!r} cannot be converted from {type_name(before.type)} to "
                f"{type_name(self.type)} (expected StringType to JSONType, or the reverse)"
            )
        if before.default is not None:
            raise InvalidRequestError(
                f"field {self.name!r} cannot be converted: it has a default, {before.default!r}, "
                "and JSON has none"
            )
        for aggregation in shape.processing.aggregations:
            if aggregation.field == self.name:
                raise InvalidRequestError(
                    f"field {self.name!r} cannot be converted: the table's aggregation "
                    f"{aggregation.op.value}({self.name}) needs it"
                )
        new = replace(before, type=self.type)
        return shape.with_values(new if each == before else each for each in shape.schema.values)


@dataclass(frozen=True, slots=True)
class OrderFields(FieldChange):
    """Orders the value fields. Each is named once."""

    kind: ClassVar[str] = "order"
    names: Annotated[tuple[str, ...], Member("fields")]

    def apply(self, shape: TableShape) -> TableShape:
        by_name = {each.name: each for each in shape.schema.values}
        for name in self.names:
            _value_field(shape.schema, name, "ordered")
        if sorted(self.names) != sorted(by_name):
            raise InvalidRequestError(
                f"order of fields: {', '.join(self.names)} (expected each value field once: "
                f"{', '.join(by_name)})"
            )
        return shape.with_values(by_name[name] for name in self.names)


def _check_name_free(schema: Schema, name: str) -> None:
    if any(each.name == name for each in schema.fields):
        raise InvalidRequestError(f"field {name!r} already exists (expected a new name)")


def _value_field(schema: Schema, name: str, done: str) -> Field:
    """Returns the value field of that name. InvalidRequestError if it is a key field."""
    field = schema.field(name)
    if field in schema.keys:
        raise InvalidRequestError(
            f"field {name!r} cannot be {done}: it is a key field (expected a value field, which "
            "has no part in the order of rows)"
        )
    return field


_WIDER = {
    PrimitiveType.INT: PrimitiveType.LONG,
    PrimitiveType.FLOAT: PrimitiveType.DOUBLE,
}
_CONVERSIONS = frozenset(
    {(PrimitiveType.STRING, PrimitiveType.JSON), (PrimitiveType.JSON, PrimitiveType.STRING)}
)


def _is_wider(before: FieldType, after: FieldType) -> bool:
    if isinstance(before, DecimalType) and isinstance(after, DecimalType):
        return after.scale == before.scale and after.precision > before.precision
    return isinstance(before, PrimitiveType) and _WIDER.get(before) == after


def _describe_wider(kind: FieldType) -> str:
    if isinstance(kind, DecimalType):
        return f"which can become a DecimalType of the scale {kind.scale} with more digits"
    if kind is PrimitiveType.STRING:
        return "which has no wider type (text that is JSON can be converted to JSONType)"
    wider = _WIDER.get(kind) if isinstance(kind, PrimitiveType) else None
    return "which has no wider type" if wider is None else f"which can become {type_name(wider)}"


_CODECS: dict[str, JsonCodec[Any]] = {
    each.kind: JsonCodec(each)
    for each in (AddField, DropField, RenameField, WidenField, ConvertField, OrderFields)
}


def _to_change(raw: Any) -> FieldChange:
    name, body = next(iter(raw.items())) if isinstance(raw, dict) and len(raw) == 1 else ("", raw)
    if name not in _CODECS:
        raise MismatchError(raw, f"one of {', '.join(_CODECS)}")
    result: FieldChange = _CODECS[name].decode(body)
    return result


def _change_to_json(change: FieldChange) -> Any:
    return {change.kind: _CODECS[change.kind].to_json(change)}


StoredChange = Annotated[FieldChange, Conversion(_to_change, _change_to_json)]
"""A change with its JSON, for annotations of members."""
