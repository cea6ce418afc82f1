"""Values of JSON as variants of Spark, without a session."""

import pyarrow as pa
import pytest
from pyspark.sql.types import StructField, StructType, VariantType

from sleeper.errors import DataError, InvalidRequestError
from sleeper.spark.options import cast_batches, to_arrow
from sleeper.spark.variants import reads_variants, variants_to_text

KINDS = to_arrow(StructType([StructField("doc", VariantType())]))


def as_variants(*texts: str | None) -> list[pa.RecordBatch]:
    column = pa.array(texts, pa.string()).cast(pa.json_())
    return [*cast_batches([pa.RecordBatch.from_arrays([column], names=["doc"])], KINDS)]


def test_variants_become_the_json_that_they_were_made_of() -> None:
    (batch,) = variants_to_text(as_variants('{"a": [1.10, null]}', None, "null"), ["doc"])
    assert batch.to_pydict() == {"doc": ['{"a":[1.10,null]}', None, "null"]}


@pytest.mark.parametrize("text", ["[" * 3000 + "]" * 3000, '"' + "x" * 16 * 1024**2 + '"'])
def test_a_value_that_no_variant_has_names_the_field(text: str) -> None:
    with pytest.raises(DataError, match="field 'doc': a value is no variant of Spark: "):
        as_variants(text)


def test_variants_need_a_version_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reads_variants({"json": "variant"})
    monkeypatch.setattr("sleeper.spark.variants._TYPE", None)
    assert not reads_variants({})
    with pytest.raises(InvalidRequestError, match="has no variants"):
        reads_variants({"json": "variant"})
