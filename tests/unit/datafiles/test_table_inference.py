"""The schema of a new table like users' files or Arrow data."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.datafiles.sources import table_inference
from sleeper.datafiles.sources.samples import sample_file
from sleeper.datafiles.sources.table_inference import (
    InferredTable,
    TableRequest,
    infer_from_arrow,
    infer_from_files,
    widen,
)
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import DecimalType, FieldType, ListType, MapType, PrimitiveType
from sleeper.storage.source_options import NestedColumns, SourceOptions

P = PrimitiveType
NESTED = SourceOptions(nested=NestedColumns.JSON)


def infer(
    folder: Path,
    files: dict[str, str | bytes | pa.Table],
    key: str = "id",
    types: dict[str, FieldType] | None = None,
    options: SourceOptions | None = None,
) -> InferredTable:
    paths = []
    for name, content in files.items():
        path = folder / name
        paths.append(path)
        if isinstance(content, pa.Table):
            pq.write_table(content, path)
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    request = TableRequest((key,), (), types or {}, options or SourceOptions())
    return infer_from_files(paths, request)


def value_types(inferred: InferredTable) -> dict[str, FieldType]:
    return {field.name: field.type for field in inferred.schema.values}


def test_columns_of_all_files_are_fields_and_types_are_widened(tmp_path: Path) -> None:
    inferred = infer(
        tmp_path,
        {
            "a.csv": "id;n;x;day;code\n1;5;1;2024-01-01;7\n",
            "b.csv.gz": gzip.compress(b"x,id,n,new,code\n1.5,2,6,true,x\n"),
            "c.jsonl": '{"id": 3, "at": "2024-01-01T10:00:00Z", "n": 2.5, "tags": ["a"]}\n',
            "d.csv": "id,day\n4,2024-01-01T10:00:00\n",
            "empty.csv": "",
            "header.csv": "id,day,later",
        },
    )
    assert [f.name for f in inferred.schema.row_keys] == ["id"]
    assert inferred.schema.row_keys[0].type is P.LONG
    assert value_types(inferred) == {
        "n": P.DOUBLE,
        "x": P.DOUBLE,
        "day": P.TIMESTAMP,
        "code": P.STRING,
        "new": P.BOOLEAN,
        "at": P.TIMESTAMP,
        "tags": ListType(P.STRING),
        "later": P.STRING,
    }
    assert all(field.nullable for field in inferred.schema.values)
    first = inferred.samples[0]
    assert first.dialect is not None
    assert (first.dialect.delimiter, first.encoding, first.row_count) == (";", "utf-8", 1)


def test_large_integers_and_codes_stay_text(tmp_path: Path) -> None:
    content = "id,big,long,code,number\n1,12345678901234567890,9223372036854775807,01,1e3\n"
    assert value_types(infer(tmp_path, {"a.csv": content})) == {
        "big": P.STRING,
        "long": P.LONG,
        "code": P.STRING,
        "number": P.DOUBLE,
    }


def test_parquet_columns_keep_their_types_and_null_flags(tmp_path: Path) -> None:
    kind = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("n", pa.int32(), nullable=False),
            pa.field("m", pa.int32()),
            pa.field("d", pa.decimal128(5, 2), nullable=False),
        ]
    )
    rows = pa.table({"id": [1], "n": [1], "m": [1], "d": [1]}, kind)
    inferred = infer(tmp_path, {"a.parquet": rows})
    assert [(f.name, f.type, f.nullable) for f in inferred.schema.values] == [
        ("n", P.INT, False),
        ("m", P.INT, True),
        ("d", DecimalType(5, 2), False),
    ]
    both = infer(tmp_path, {"a.parquet": rows, "b.parquet": rows.drop_columns(["n"])})
    assert [f.nullable for f in both.schema.values] == [True, True, False]


def test_types_that_no_rows_can_share_are_refused(tmp_path: Path) -> None:
    numbers = pa.table({"id": [1], "v": [1]})
    texts = pa.table({"id": [1], "v": ["x"]})
    with pytest.raises(
        InvalidRequestError,
        match=r"column 'v' is LongType in file \S+a.parquet and StringType in file \S+b.parquet",
    ):
        infer(tmp_path, {"a.parquet": numbers, "b.parquet": texts})
    with pytest.raises(InvalidRequestError, match="column 'v' is"):
        infer(tmp_path, {"a.jsonl": '{"id":1,"v":1}\n', "b.jsonl": '{"id":1,"v":"x"}\n'})
    # Text of CSV can be read as text.
    found = infer(tmp_path, {"a.csv": "id,v\n1,1\n", "b.parquet": texts})
    assert value_types(found) == {"v": P.STRING}
    found = infer(tmp_path, {"a.csv": "id,v\n1,1.5\n", "b.parquet": numbers})
    assert value_types(found) == {"v": P.DOUBLE}


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"a.csv": "id,v\n1,2\n\n,3\n"}, r"a\.csv, row 2: column 'id' has no value"),
        ({"a.jsonl": '{"id":1}\n{"v":2}\n'}, r"a\.jsonl, row 2: column 'id' has no value"),
        (
            {"a.parquet": pa.table({"id": pa.array([1, 2, None])})},
            r"a\.parquet, row 3: column 'id' has no value",
        ),
        ({"a.csv": "id\n1\n", "b.csv": "v,ident\n1,2\n"}, r"b\.csv has no column 'id'"),
        ({"a.csv": "ids,v\n1,2\n"}, r"no column 'id' \(expected one of ids LongType, v .*ids\?"),
        ({"a.csv": ""}, "the files have no columns"),
        (
            {"a.parquet": pa.table({"id": [1], "t": pa.array([1], pa.time64("us"))})},
            r"a\.parquet: column 't' is time64.*expected numbers",
        ),
    ],
    ids=str,
)
def test_files_of_no_table_are_refused(
    tmp_path: Path, files: dict[str, str | bytes | pa.Table], problem: str
) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        infer(tmp_path, files)


def test_nested_columns_are_text_on_request(tmp_path: Path) -> None:
    nested = pa.table({"id": [1], "s": [{"a": 1}], "l": [[{"b": 2}]], "plain": [[1, 2]]})
    inferred = infer(
        tmp_path, {"a.parquet": nested, "b.jsonl": '{"id":2,"s":{"c":"x"}}\n'}, options=NESTED
    )
    assert value_types(inferred) == {"s": P.STRING, "l": P.STRING, "plain": ListType(P.LONG)}


def test_said_types_replace_those_of_columns(tmp_path: Path) -> None:
    inferred = infer(tmp_path, {"a.csv": "id,v\n1,2\n"}, types={"v": P.INT, "id": P.STRING})
    assert value_types(inferred) == {"v": P.INT}
    assert inferred.schema.row_keys[0].type is P.STRING
    with pytest.raises(InvalidRequestError, match="no column 'w'"):
        infer(tmp_path, {"a.csv": "id,v\n1,2\n"}, types={"w": P.INT})


def test_bounded_part_of_many_and_large_files_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_inference, "_FILES_MAX", 3)
    monkeypatch.setattr(table_inference, "_SAMPLE_BYTES_MAX", 1000)
    files: dict[str, str | bytes | pa.Table] = {
        f"{n}.csv": "id,v\n" + "1,2\n" * 1000 + "x,y\n" for n in range(7)
    }
    inferred = infer(tmp_path, files)
    assert (len(inferred.samples), inferred.files) == (3, 7)
    assert value_types(inferred) == {"v": P.LONG}
    assert not inferred.samples[0].is_whole
    assert inferred.samples[0].row_count < 250


def test_rows_of_another_length_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,v\n1,2\n3\n4,5\n")
    sample = sample_file(tmp_path / "a.csv", 1000)
    assert (sample.row_count, sample.irregular_rows) == (2, 1)


def test_first_rows_are_those_of_the_first_file_with_some(tmp_path: Path) -> None:
    files: dict[str, str | bytes | pa.Table] = {
        "a.csv": "id\n",
        "b.parquet": pa.table({"id": [1, 2, 3]}),
    }
    rows = infer(tmp_path, files).first_rows(2)
    assert rows is not None
    assert rows.to_pylist() == [{"id": 1}, {"id": 2}]


def test_arrow_data_has_its_types_and_keys_without_nulls() -> None:
    rows = pa.table({"k": ["a", None], "n": [1, 2]})
    schema = infer_from_arrow(rows.schema, None, TableRequest(("k",), ("n",)))
    assert [f.name for f in schema.keys] == ["k", "n"]
    with pytest.raises(InvalidRequestError, match="row 2: column 'k' has no value"):
        infer_from_arrow(rows.schema, rows, TableRequest(("k",)))
    with pytest.raises(
        InvalidRequestError, match=r"no row key is named .*k StringType, n LongType"
    ):
        infer_from_arrow(rows.schema, rows, TableRequest(()))
    with pytest.raises(InvalidRequestError, match="duplicate keys: 'k'"):
        infer_from_arrow(rows.schema, rows, TableRequest(("k",), ("k",)))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (P.INT, P.LONG, P.LONG),
        (P.LONG, P.FLOAT, P.DOUBLE),
        (P.DATE, P.TIMESTAMP, P.TIMESTAMP),
        (P.BOOLEAN, P.LONG, P.STRING),
        (DecimalType(5, 2), DecimalType(6, 1), DecimalType(7, 2)),
        (DecimalType(5, 2), P.INT, DecimalType(12, 2)),
        (DecimalType(38, 0), DecimalType(38, 5), P.STRING),
        (DecimalType(5, 2), P.DOUBLE, P.STRING),
        (ListType(P.INT), ListType(P.LONG), ListType(P.LONG)),
        (MapType(P.STRING, P.INT), MapType(P.STRING, P.DOUBLE), MapType(P.STRING, P.DOUBLE)),
        (ListType(P.INT), P.INT, P.STRING),
    ],
    ids=str,
)
def test_two_types_have_a_common_one(
    left: FieldType, right: FieldType, expected: FieldType
) -> None:
    assert widen(left, right) == widen(right, left) == expected
