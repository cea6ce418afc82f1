"""Fields of `JSONType` as Spark's `VariantType`, which PySpark has from 4.0 on.

A *variant* is binary: two columns of bytes in Arrow. Its numbers are decimals of up to 38 digits,
without zeros at the end, and floats, so its text can differ from the one that was written. Spark's
own `parse_json` and `to_json` convert columns in the JVM; where rows come from Python or go to it,
the functions of PySpark convert value by value.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import types
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from sleeper.datafiles.arrow import is_json, json_storage
from sleeper.errors import DataError, InvalidRequestError
from sleeper.schema.model import PrimitiveType, Schema

# PySpark 3.5 has no such type.
_TYPE: Any = getattr(types, "VariantType", None)
_VALUE, _METADATA = "value", "metadata"


def reads_variants(options: Mapping[str, str]) -> bool:
    """Returns whether the option `json` requests variants. InvalidRequestError if it cannot."""
    text = options.get("json", "text")
    if text not in ("text", "variant"):
        raise InvalidRequestError(f"option 'json': {text!r} (expected text or variant)")
    if text == "variant" and _TYPE is None:
        raise InvalidRequestError(
            f"option 'json': PySpark {pyspark.__version__} has no variants (expected text, or "
            "PySpark 4.0 or newer)"
        )
    return text == "variant"


def with_variants(kinds: StructType, schema: Schema) -> StructType:
    """Returns the columns of a DataFrame, with variants for fields of `JSONType`."""
    names = json_names(schema)
    return StructType(
        [
            StructField(each.name, _TYPE(), each.nullable) if each.name in names else each
            for each in kinds
        ]
    )


def json_names(schema: Schema) -> set[str]:
    """Returns the names of the fields of `JSONType`."""
    return {field.name for field in schema.fields if field.type is PrimitiveType.JSON}


def variant_names(kinds: StructType) -> list[str]:
    """Returns the names of the columns of variants.

    InvalidRequestError for a column with variants inside, such as a list of them.
    """
    if _TYPE is None:
        return []
    names = []
    for each in kinds:
        if isinstance(each.dataType, _TYPE):
            names.append(each.name)
        elif _has_variant(each.dataType):
            raise InvalidRequestError(
                f"column {each.name!r} has variants inside: {each.dataType.simpleString()} "
                "(expected a variant, such as to_variant_object makes, or text)"
            )
    return names


def _has_variant(kind: DataType) -> bool:
    match kind:
        case ArrayType():
            return _has_variant(kind.elementType)
        case MapType():
            return _has_variant(kind.keyType) or _has_variant(kind.valueType)
        case StructType():
            return any(_has_variant(each.dataType) for each in kind)
    return isinstance(kind, _TYPE)


def without_variants(kinds: StructType) -> StructType:
    """Returns the columns of a DataFrame, with text for variants."""
    names = variant_names(kinds)
    return StructType(
        [
            StructField(each.name, StringType(), each.nullable) if each.name in names else each
            for each in kinds
        ]
    )


def to_variants(column: pa.Array, kind: pa.StructType, name: str) -> pa.Array:
    """Returns a column of JSON as one of variants. DataError if Spark cannot have one of them."""
    from pyspark.sql.variant_utils import VariantUtils

    texts = (json_storage(column) if is_json(column.type) else column).to_pylist()
    try:
        pairs = [(b"", b"") if text is None else VariantUtils.parse_json(text) for text in texts]
    except (PySparkException, ValueError, RecursionError) as error:
        raise DataError(
            f"field {name!r}: a value is no variant of Spark: {error} (expected json=text)"
        ) from error
    parts = {_VALUE: [value for value, _ in pairs], _METADATA: [names for _, names in pairs]}
    arrays = [pa.array(parts[field.name], pa.binary()) for field in kind]
    mask = pa.array([text is None for text in texts], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=mask)


def variants_to_text(
    batches: Iterable[pa.RecordBatch], names: Iterable[str]
) -> Iterator[pa.RecordBatch]:
    """Yields the batches with the JSON of the variants in the columns of these names."""
    names = set(names)
    if not names:
        yield from batches
        return
    for batch in batches:
        columns = [
            _to_text(column) if name in names else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _to_text(column: pa.Array) -> pa.Array:
    from pyspark.sql.variant_utils import VariantUtils

    texts = [
        None if each is None else VariantUtils.to_json(each[_VALUE], each[_METADATA])
        for each in column.to_pylist()
    ]
    return pa.array(texts, pa.string())
