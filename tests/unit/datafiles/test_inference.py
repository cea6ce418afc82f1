"""The schema of users' files that belong to no table."""

import gzip
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from sleeper.datafiles.sources import inference
from sleeper.datafiles.sources.inference import find_field_type, infer_schema
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import DecimalType, Field, ListType, MapType, PrimitiveType


def types(folder: Path, name: str, content: str | bytes) -> dict[str, object]:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    schema = infer_schema([path], ())
    return {} if schema is None else {each.name: each.type for each in schema.fields}


def test_csv_has_the_first_type_that_all_values_fit(tmp_path: Path) -> None:
    content = "\n".join(
        (
            "id,price,active,day,at,zip,name,mixed,empty",
            "1,1.5,true,2024-01-01,2024-01-01T10:00:00Z,01067,Ann,1,",
            "-2,2,false,2024-12-31,2024-01-01 11:00:00+01:00,99999,,x,",
            "",
        )
    )
    assert types(tmp_path, "a.csv", content) == {
        "id": PrimitiveType.LONG,
        "price": PrimitiveType.DOUBLE,
        "active": PrimitiveType.BOOLEAN,
        "day": PrimitiveType.DATE,
        "at": PrimitiveType.TIMESTAMP,
        "zip": PrimitiveType.STRING,
        "name": PrimitiveType.STRING,
        "mixed": PrimitiveType.STRING,
        "empty": PrimitiveType.STRING,
    }


def test_json_lines_have_the_types_of_their_values(tmp_path: Path) -> None:
    content = '{"id": 1, "at": "2024-01-01T00:00:00", "tags": ["a"], "x": 1.5, "ok": true}\n'
    expected = {
        "id": PrimitiveType.LONG,
        "at": PrimitiveType.STRING,
        "tags": ListType(PrimitiveType.STRING),
        "x": PrimitiveType.DOUBLE,
        "ok": PrimitiveType.BOOLEAN,
    }
    assert types(tmp_path, "a.jsonl", content) == expected
    assert types(tmp_path, "b.jsonl.gz", gzip.compress(content.encode())) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.int8(), PrimitiveType.INT),
        (pa.uint16(), PrimitiveType.INT),
        (pa.uint32(), PrimitiveType.LONG),
        (pa.uint64(), PrimitiveType.LONG),
        (pa.float16(), PrimitiveType.FLOAT),
        (pa.float64(), PrimitiveType.DOUBLE),
        (pa.large_string(), PrimitiveType.STRING),
        (pa.dictionary(pa.int32(), pa.string()), PrimitiveType.STRING),
        (pa.binary_view(), PrimitiveType.BYTE_ARRAY),
        (pa.timestamp("ns"), PrimitiveType.TIMESTAMP),
        (pa.date64(), PrimitiveType.DATE),
        (pa.decimal128(10, 2), DecimalType(10, 2)),
        (pa.decimal256(60, 2), None),
        (pa.decimal128(10, -2), None),
        (pa.list_(pa.int64()), ListType(PrimitiveType.LONG)),
        (pa.list_(pa.list_(pa.int64())), PrimitiveType.JSON),
        (
            pa.map_(pa.string(), pa.float64()),
            MapType(PrimitiveType.STRING, PrimitiveType.DOUBLE),
        ),
        (pa.map_(pa.string(), pa.struct([])), PrimitiveType.JSON),
        (pa.struct([("a", pa.int64())]), PrimitiveType.JSON),
        (pa.json_(pa.string_view()), PrimitiveType.JSON),
        (pa.list_(pa.json_()), PrimitiveType.JSON),
        (pa.time64("us"), None),
    ],
    ids=str,
)
def test_arrow_types_have_field_types(kind: pa.DataType, expected: object) -> None:
    assert find_field_type(kind) == expected


def test_the_first_column_is_the_key_by_default(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "name": ["Ann"], "n": [2]}), tmp_path / "a.parquet")
    schema = infer_schema([tmp_path / "a.parquet"], ())
    assert schema is not None
    assert schema.row_keys == (Field("id", PrimitiveType.LONG, id=1),)
    assert schema.values[0] == Field("name", PrimitiveType.STRING, True, id=2)
    schema = infer_schema([tmp_path / "a.parquet"], ["name", "id"])
    assert schema is not None
    assert [each.name for each in schema.row_keys] == ["name", "id"]
    assert [each.name for each in schema.values] == ["n"]


def test_a_key_that_no_column_has_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ident,name\n1,Ann\n")
    with pytest.raises(InvalidRequestError, match=r"a.csv has no column 'iden' .*mean ident\?"):
        infer_schema([tmp_path / "a.csv"], ["iden"])


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.jsonl", '{"id": 1\n', "a.jsonl: not a readable json lines file"),
        ("a.parquet", "PAR1", "a.parquet: not a readable parquet file"),
        ("a.csv", "id,price\n1.5,2\n", "key field 'id' has type DoubleType"),
    ],
)
def test_a_file_that_has_no_schema_is_an_error(
    tmp_path: Path, name: str, content: str, problem: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidRequestError, match=problem):
        infer_schema([tmp_path / name], ())


def test_a_column_without_values_has_its_type_from_the_next_file(tmp_path: Path) -> None:
    for name, content in (("a", "id,n\n"), ("b", "id,n\n1,\n"), ("c", "id,n\nx,2.5\n")):
        (tmp_path / f"{name}.csv").write_text(content)
    (tmp_path / "none.csv").write_text("")
    files = [tmp_path / f"{name}.csv" for name in ("none", "a", "b", "c")]
    schema = infer_schema(files, ())
    assert schema is not None
    assert [each.type for each in schema.fields] == [PrimitiveType.LONG, PrimitiveType.DOUBLE]
    assert infer_schema(files[:1], ()) is None
    assert infer_schema([], ()) is None


def test_only_whole_lines_of_a_large_file_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The line end within quotes would end the sample within the value.
    text = pa.table({"id": range(100), "text": ['a\n"b"\nc'] * 100})
    sink = io.BytesIO()
    csv.write_csv(text, sink)
    (tmp_path / "a.csv").write_bytes(sink.getvalue())
    for sample_bytes in range(40, 80):
        monkeypatch.setattr(inference, "_SAMPLE_BYTES", sample_bytes)
        schema = infer_schema([tmp_path / "a.csv"], ())
        assert schema is not None
        assert [each.type for each in schema.fields] == [PrimitiveType.LONG, PrimitiveType.STRING]
