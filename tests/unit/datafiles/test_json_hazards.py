"""Lines that would end the process in Arrow's parser are refused before it reads them."""

from pathlib import Path

import pytest

from sleeper.datafiles.sources.files import RowChecker
from sleeper.datafiles.sources.inference import infer_schema
from sleeper.datafiles.sources.json_hazards import check_depth, check_objects
from sleeper.datafiles.sources.text import read_json_lines
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import Field, ListType, MapType, PrimitiveType, Schema

FLAT = Schema(
    (Field("id", PrimitiveType.LONG),),
    (),
    (Field("tags", ListType(PrimitiveType.STRING), nullable=True),),
)
WITH_MAPS = Schema(
    FLAT.row_keys,
    (),
    (
        *FLAT.values,
        Field("text", PrimitiveType.STRING, nullable=True),
        Field("data", PrimitiveType.BYTE_ARRAY, nullable=True),
        Field("price", PrimitiveType.LONG, nullable=True),
        Field("props", MapType(PrimitiveType.STRING, PrimitiveType.LONG), nullable=True),
    ),
)
DEEP = b"[" * 100_000
HAZARDS = {
    "null": b"null",
    "nulls": b" null null",
    "deep list": b'{"id": 1, "tags": %b' % DEEP,
    "deep objects": b'{"id": 1, "other": %b' % (b'{"a": ' * 100_000),
    "deep whole": b'{"id": 1, "other": %b}' % (DEEP + b"]" * len(DEEP)),
}


@pytest.mark.parametrize("schema", [FLAT, WITH_MAPS], ids=["flat", "maps"])
@pytest.mark.parametrize("ignores_extra", [False, True])
@pytest.mark.parametrize("name", HAZARDS)
def test_hazards_are_invalid_rows(
    tmp_path: Path, name: str, schema: Schema, ignores_extra: bool
) -> None:
    path = tmp_path / "rows.jsonl"
    for before, row in ((b"", 1), (b'{"id": 7}\n', 2)):
        path.write_bytes(before + HAZARDS[name] + b'\n{"id": 8}\n')
        checker = RowChecker(schema, "rows", None, ignores_extra_columns=ignores_extra)
        with pytest.raises(InvalidRequestError, match=f"^file rows, row {row}: "):
            list(read_json_lines(path, checker))


@pytest.mark.parametrize("name", HAZARDS)
def test_hazards_have_no_schema(tmp_path: Path, name: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(HAZARDS[name])
    with pytest.raises(InvalidRequestError, match=r"rows\.jsonl"):
        infer_schema([path], ["id"])


def test_long_lines_that_are_not_deep_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    tags = ['"%s"' % ("[" * 60_000), *['"\\"[{"'] * 30_000]
    path.write_text(f'{{"id": 1, "tags": [{", ".join(tags)}]}}\n{{"id": 2}}\n')
    (batch,) = read_json_lines(path, RowChecker(FLAT, "rows", None))
    assert batch.column("id").to_pylist() == [1, 2]
    assert len(batch.column("tags")[0]) == len(tags)


@pytest.mark.parametrize("levels", [10_000, 10_001])
@pytest.mark.parametrize("before", [0, 4_999, 5_000])
def test_depth_is_counted_from_the_start_of_a_value(levels: int, before: int) -> None:
    lines = b" " * before + b"\n" + b"[" * levels + b"]" * levels + b"\n"
    if levels == 10_000:
        check_depth(lines)
        return
    with pytest.raises(ValueError, match="nested deeper than 10000 levels"):
        check_depth(lines)


def test_byte_order_marks_may_precede_objects() -> None:
    check_objects([b'\xef\xbb\xbf{"id": 1}', b' \t{"id": 2}'])
    with pytest.raises(ValueError, match="not an object"):
        check_objects([b'{"id": 1}', b'\xef\xbb\xbf"id"'])


@pytest.mark.parametrize("number", ["1.5", "1e2", "-0.0", "1e400"])
@pytest.mark.parametrize("name", ["text", "data", "price", "tags"])
def test_numbers_are_not_text_in_tables_with_maps(tmp_path: Path, name: str, number: str) -> None:
    path = tmp_path / "rows.jsonl"
    value = f"[{number}]" if name == "tags" else number
    path.write_text(f'{{"id": 1, "{name}": {value}, "props": {{}}}}\n')
    with pytest.raises(InvalidRequestError, match=f"row 1: field '{name}'"):
        list(read_json_lines(path, RowChecker(WITH_MAPS, "rows", None)))
