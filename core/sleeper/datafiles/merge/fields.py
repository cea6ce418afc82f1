"""The columns of a file as the fields of a later schema.

The engine fills the columns of a scan by name, so a scan has the schema of its file. The
projection above it finds the fields by their ids. Key fields never change, so the declared order
of a file is kept.
"""

import pyarrow as pa
from datafusion import DataFrame, lit
from datafusion.expr import Expr

from sleeper.datafiles.arrow import arrow_type, view_schema
from sleeper.datafiles.engine.expression import column
from sleeper.schema.defaults import default_value
from sleeper.schema.model import Field, Schema


def map_fields(frame: DataFrame, stored: Schema, schema: Schema) -> DataFrame:
    """Returns the rows of a file of the `stored` schema as rows of the schema."""
    if stored.version == schema.version:
        return frame
    by_id = {field.id: field for field in stored.fields}
    kinds = view_schema(schema)
    return frame.select(
        *(
            _mapped(by_id.get(field.id), field, kinds.field(field.name).type).alias(field.name)
            for field in schema.fields
        )
    )


def _mapped(stored: Field | None, field: Field, kind: pa.DataType) -> Expr:
    if stored is None and field.default is None:
        return lit(None).cast(kind)
    if stored is None:
        return lit(pa.scalar(default_value(field), arrow_type(field.type))).cast(kind)
    return column(stored.name) if stored.type == field.type else column(stored.name).cast(kind)
