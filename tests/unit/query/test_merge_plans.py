"""Physical plans of the engine: merges without sorts, skipped pages."""

import re
from pathlib import Path

import pytest

from sleeper.datafiles.engine.session import open_session
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.frame import merge_frame
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.datafiles.write.file import FileSettings
from sleeper.partitions.region import key_region
from sleeper.query.request import Query, make_range_region
from sleeper.query.run import plan_table_query, run_query
from sleeper.schema.model import Field, PrimitiveType, Schema
from tests.tables.data_table import DataTable, list_rows, make_engine

SCHEMA = Schema(
    (Field("Key", PrimitiveType.STRING),),
    (Field("time", PrimitiveType.LONG),),
    (Field("value", PrimitiveType.STRING, nullable=True),),
)


def plan_text(inputs: int, partitions: int, folder: Path, table: DataTable, **request) -> str:
    file = table.add_rows([(f"k{n:05d}", n, "v") for n in range(100)])
    region = (make_range_region(SCHEMA, "k00010", "k00020"),)
    merge_input = MergeInput(table.root.url_of(file.path), request.pop("regions", region))
    session = open_session(EngineSettings(folder), partitions)
    frame, _ = merge_frame(MergeRequest(SCHEMA, (merge_input,) * inputs, **request), session)
    return frame.execution_plan().display_indent()


@pytest.fixture
def table(tmp_path: Path) -> DataTable:
    return DataTable(tmp_path, SCHEMA)


@pytest.mark.parametrize("inputs", [1, 2, 9, 70])
@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("request_", [{}, {"columns": ("value",)}, {"limit": 5}])
def test_merge_does_not_sort(
    inputs: int, partitions: int, request_: dict, tmp_path: Path, table: DataTable
):
    plan = plan_text(inputs, partitions, tmp_path, table, **request_)
    assert "SortExec" not in plan
    assert plan.count("DataSourceExec") == inputs
    assert ("SortPreservingMergeExec" in plan) == (inputs > 1)


def test_lookup_reads_one_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    table = DataTable(tmp_path, SCHEMA, file_settings=FileSettings(page_bytes=4096))
    file = table.add_rows([(f"k{n:05d}", n, f"v{n}") for n in range(50_000)])
    merge_input = MergeInput(table.root.url_of(file.path), (key_region(SCHEMA, ("k31234",)),))
    session = open_session(EngineSettings(tmp_path))
    frame, _ = merge_frame(MergeRequest(SCHEMA, (merge_input,)), session)
    frame.explain(analyze=True)
    output = capsys.readouterr().out
    match = re.search(r"page_index_pages_pruned=(\d+) total . (\d+) matched", output)
    assert match is not None
    total, matched = int(match.group(1)), int(match.group(2))
    assert total > 20
    assert matched == 1


def test_list_of_keys_is_evaluated_before_its_bounds(tmp_path: Path, table: DataTable):
    """The list excludes most rows before they are compared with the bounds."""
    file = table.add_rows([(f"k{n:05d}", n, "v") for n in range(1000)])
    regions = tuple(key_region(SCHEMA, (f"k{n:05d}",)) for n in range(0, 900, 30))
    merge_input = MergeInput(table.root.url_of(file.path), regions)
    session = open_session(EngineSettings(tmp_path))
    frame, _ = merge_frame(MergeRequest(SCHEMA, (merge_input,)), session)
    (match,) = re.findall(r"predicate=(.*), pruning_predicate=", frame.execution_plan().display())
    bounds = [match.index(bound) for bound in (">= k00000", "<= k00870")]
    assert 0 < match.index(" IN (") < min(bounds)
    assert frame.count() == len(regions)


def test_files_outside_the_region_are_not_opened(tmp_path: Path, table: DataTable):
    table.add_rows([(f"k{n:05d}", n, "v") for n in range(100)])
    far = table.add_rows([(f"x{n:05d}", n, "v") for n in range(100)])
    Path(table.root.url_of(far.path)).write_bytes(b"not a parquet file")
    query = Query((make_range_region(SCHEMA, "k", "l"),))
    assert len(plan_table_query(query, table.query_table).leaves[0].scans) == 1
    result = run_query(query, table.query_table, make_engine(tmp_path)).read_all()
    assert len(list_rows(result)) == 100
