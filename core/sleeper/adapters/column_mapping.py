"""Columns of a source as fields of a sink: which column each field is read from, and constants.

A *mapped field* is read from the column that the mapping names, and any other one from the column
of its own name. A *constant* is the same value in all rows. Columns that no field is read from are
ignored.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from sleeper.errors import InvalidRequestError, did_you_mean
from sleeper.schema.model import Field, ListType, MapType, Schema, type_name

MAPPED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """The columns of mapped fields and the texts of constants, by the names of fields.

    Raises InvalidRequestError if a field is in both, or a name is empty.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(self.columns) + len(self.constants)
        if count > MAPPED_MAX:
            raise InvalidRequestError(f"{count:,} mapped fields (expected at most {MAPPED_MAX:,})")
        if "" in (*self.columns, *self.columns.values(), *self.constants):
            raise InvalidRequestError("mapping of columns: a name is empty")
        for name in self.columns:
            if name in self.constants:
                raise InvalidRequestError(
                    f"field {name!r} has a column and a constant (expected one of them)"
                )

    @property
    def is_empty(self) -> bool:
        """Whether each field is read from the column of its name."""
        return not self.columns and not self.constants

    def column_of(self, name: str) -> str:
        """Returns the column that a field is read from."""
        return self.columns.get(name, name)

    def source_schema(self, sink: Schema) -> Schema:
        """Returns the schema of the source: the fields that are read, named as their columns.

        A mapped field needs its column, also if it was added to the table. InvalidRequestError if
        a field is not one of the sink, if several are read from one column, if a constant is a list
        or a map, or if all row keys are constants.
        """
        if self.is_empty:
            return sink
        self._check(sink)
        row_keys, sort_keys, values = map(
            self._rename, (sink.row_keys, sink.sort_keys, sink.values)
        )
        if not row_keys:
            raise InvalidRequestError(
                f"all row keys are constants: {', '.join(each.name for each in sink.row_keys)} "
                "(expected a column of the source for at least one)"
            )
        schema = Schema(row_keys, sort_keys, values)
        optional = {self.column_of(name) for name in sink.added_names if name not in self.columns}
        if optional:
            # Fields that no earlier schema has may be missing.
            needed = tuple(each for each in values if each.name not in optional)
            schema = replace(schema, earlier=(Schema(row_keys, sort_keys, needed),))
        return schema

    def _rename(self, fields: Iterable[Field]) -> tuple[Field, ...]:
        read = (each for each in fields if each.name not in self.constants)
        return tuple(replace(each, name=self.column_of(each.name)) for each in read)

    def _check(self, sink: Schema) -> None:
        by_name = {each.name: each for each in sink.fields}
        _check_names((*self.columns, *self.constants), by_name)
        read = Counter(self.column_of(name) for name in by_name if name not in self.constants)
        for column, count in read.items():
            if count > 1:
                fields = [name for name in by_name if self.column_of(name) == column]
                raise InvalidRequestError(
                    f"fields {', '.join(map(repr, fields))} are all read from column {column!r} "
                    "(expected one field for each column)"
                )
        for name in self.constants:
            kind = by_name[name].type
            if isinstance(kind, ListType | MapType):
                raise InvalidRequestError(
                    f"field {name!r} is {type_name(kind)} (expected a constant of another type)"
                )


NO_MAPPING = ColumnMapping()
"""The mapping that reads each field from the column of its name."""


def _check_names(names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise InvalidRequestError(
                f"the sink has no field {name!r} (expected some of {', '.join(known)})"
                f"{did_you_mean(name, known)}"
            )
