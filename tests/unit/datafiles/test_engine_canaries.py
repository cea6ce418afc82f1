"""Defects of DataFusion, Arrow and DataSketches for which the code has a workaround.

A test that fails here means that the defect is gone: remove the workaround that it names.
"""

import io
import math
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import SessionConfig, SessionContext, col, lit
from datafusion import functions as f
from datasketches import PyStringsSerDe

from sleeper.datafiles.engine.expression import key_order
from sleeper.schema.model import Field, PrimitiveType, Schema

ID = pa.schema([("id", pa.int64())])


@pytest.fixture
def session() -> SessionContext:
    config = SessionConfig().with_target_partitions(1)
    return SessionContext(config.set("datafusion.execution.collect_statistics", "false"))


def write_parquet(path: Path, values: list[int], **settings: object) -> Path:
    pq.write_table(pa.table({"id": pa.array(values, pa.int64())}), path, **settings)
    return path


def replace_column_type(content: bytes) -> bytes:
    """Changes the type of a chunk of text in a file's footer to 32-bit integers."""
    place = content.rindex(b"\x15\x0c\x19")  # the chunk's type, BYTE_ARRAY, then its encodings
    return content[:place] + b"\x15\x02\x19" + content[place + 3 :]


@pytest.mark.parametrize("content", [None, b""])
def test_scan_count_missing_and_empty_files_are_empty_tables(
    session: SessionContext, tmp_path: Path, content: bytes | None
):
    """engine/scan.py, apache/datafusion#1736 and #13737"""
    path = tmp_path / "data.parquet"
    if content is not None:
        path.write_bytes(content)
    session.register_parquet("t", path.as_uri(), schema=ID)
    assert session.table("t").count() == 0


def test_plan_edit_a_table_has_one_path(session: SessionContext, tmp_path: Path):
    """engine/scan.py, apache/datafusion-python#535"""
    paths = [write_parquet(tmp_path / f"{n}.parquet", [n]) for n in range(2)]
    with pytest.raises(TypeError, match="list"):
        session.register_parquet("t", paths)  # type: ignore[arg-type]


def test_errors_have_no_types(session: SessionContext, tmp_path: Path):
    """engine/errors.py, apache/datafusion-python#796"""
    path = write_parquet(tmp_path / "data.parquet", [1])
    session.register_parquet("t", path.as_uri(), schema=ID)
    plan = session.table("t").execution_plan()
    path.unlink()
    with pytest.raises(Exception, match="not found") as error:
        list(session.execute(plan, 0))
    assert type(error.value) in (Exception, ValueError)


def test_parquet_footer_arrow_aborts_on_contradicting_statistics(tmp_path: Path):
    """engine/parquet_footer.py `column_statistics`, apache/arrow#46724"""
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": ["a"]}), sink)
    path = tmp_path / "bad.parquet"
    path.write_bytes(replace_column_type(sink.getvalue()))
    program = (
        "import sys, pyarrow.parquet as pq\n"
        "pq.ParquetFile(sys.argv[1]).metadata.row_group(0).column(0).statistics\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode < 0, run.stderr
    assert "ParquetException" in run.stderr


def test_parquet_footer_arrow_cannot_select_row_groups_of_a_footer():
    """engine/parquet_footer.py `with_row_groups`, apache/arrow#35638"""
    offered = {name for name in dir(pq.FileMetaData) if "row_group" in name}
    assert offered == {"append_row_groups", "num_row_groups", "row_group"}


def test_predicate_long_lists_prune_nothing(session: SessionContext, tmp_path: Path):
    """engine/expression.py, apache/datafusion#8609"""
    path = write_parquet(tmp_path / "data.parquet", list(range(1000)), row_group_size=100)
    session.register_parquet("t", path.as_uri(), schema=ID)

    def is_pruned(values: range) -> bool:
        listing = ", ".join(map(str, values))
        result = session.sql(f"EXPLAIN ANALYZE SELECT * FROM t WHERE id IN ({listing})").to_pydict()
        return "row_groups_pruned_statistics=10 total → 1 matched" in str(result["plan"])

    assert is_pruned(range(20))
    assert not is_pruned(range(21))


def test_key_order_null_order_of_a_file_must_match(session: SessionContext, tmp_path: Path):
    """engine/expression.py `key_order`, no upstream issue found"""
    schema = Schema((Field("id", PrimitiveType.LONG),))
    path = write_parquet(tmp_path / "data.parquet", [1, 2])
    order = [col("id").sort(ascending=True, nulls_first=True)]
    session.register_parquet("t", path.as_uri(), schema=ID, file_sort_order=[order])
    plan = session.table("t").sort(*key_order(schema)).execution_plan()
    assert "SortExec" in plan.display_indent()


@pytest.mark.parametrize(
    ("values", "maximum"),
    [([math.nan, 1.0], 1.0), ([1.0, math.nan], math.nan), ([-math.inf], -sys.float_info.max)],
)
def test_float_extremes_depend_on_row_order(
    session: SessionContext, values: list[float], maximum: float
):
    """engine/expression.py, apache/datafusion#24432 and #13415"""
    frame = session.from_arrow(pa.table({"key": [1] * len(values), "value": values}))
    result = frame.aggregate([col("key")], [f.max(col("value")).alias("value")])
    assert result.to_pydict()["value"] == pytest.approx([maximum], nan_ok=True)


def test_a_limit_above_a_merge_disregards_the_order_of_filtered_scans(tmp_path: Path):
    """merge/plan.py `_reads_all_rows`, apache/datafusion#24272"""
    config = SessionConfig().with_target_partitions(1)
    session = SessionContext(config.set("datafusion.execution.parquet.pushdown_filters", "true"))
    path = write_parquet(tmp_path / "data.parquet", list(range(40)), row_group_size=10)
    order = key_order(Schema((Field("id", PrimitiveType.LONG),)))
    frames = []
    for name in "ab":
        session.register_parquet(name, path.as_uri(), schema=ID, file_sort_order=[order])
        frames.append(session.table(name).filter(col("id") >= lit(5)))
    limited = frames[0].union(frames[1]).sort(*order).limit(2)
    assert limited.to_pydict() == {"id": [10, 10]}


def test_a_pattern_does_not_tell_whether_it_ignores_case(session: SessionContext):
    """query/sql/key_predicates.py `_pattern_regions`, no upstream issue found"""
    frame = session.from_arrow(pa.table({"text": ["a"]}))
    like = frame.parse_sql_expr("text ILIKE 'a%'").to_variant()
    assert {each for each in dir(like) if not each.startswith("_")} == {
        "escape_char",
        "expr",
        "negated",
        "pattern",
    }


def test_datasketches_string_serde_fails_on_text_beyond_latin_1():
    """sidecars/sketches.py `_TextSerDe`, no upstream issue found"""
    serde = PyStringsSerDe()
    with pytest.raises(Exception, match="byte must be in range"):
        serde.to_bytes("\N{EURO SIGN}")
