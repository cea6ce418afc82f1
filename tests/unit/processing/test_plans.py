"""The engine's plans of a processing: they stream for every aggregation and query."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.session import open_session
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.frame import merge_frame
from sleeper.datafiles.merge.plan import merge
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.datafiles.merge.steps import ProcessingStep
from sleeper.partitions.region import key_region
from sleeper.processing.model import Processing
from sleeper.processing.text import parse_aggregations, parse_filters
from sleeper.schema.model import Field, MapType, PrimitiveType, Schema

P = PrimitiveType
SCHEMA = Schema(
    (Field("Key", P.STRING),),
    (Field("time", P.LONG),),
    (
        Field("int", P.INT),
        Field("float", P.DOUBLE),
        Field("counts", MapType(P.STRING, P.INT)),
    ),
)
STEP = ProcessingStep(
    Processing(
        parse_filters("ageOff(time,10)"),
        parse_aggregations("sum(int),max(float),map_sum(counts)"),
    ),
    now_ms=20,
)


def write(path: Path, keys: list[str], ints: list[int], counts: list) -> MergeInput:
    rows = len(keys)
    columns = [keys, [100] * rows, ints, [0.5] * rows, counts]
    pq.write_table(pa.table(columns, schema=arrow_schema(SCHEMA)), path)
    return MergeInput(str(path))


@pytest.fixture
def merge_input(tmp_path: Path) -> MergeInput:
    return write(tmp_path / "one.parquet", ["a", "b"], [1, 2], [[("x", 1)], []])


def plan_text(folder: Path, inputs: tuple[MergeInput, ...], **request) -> str:
    session = open_session(EngineSettings(folder))
    frame, _ = merge_frame(MergeRequest(SCHEMA, inputs, steps=(STEP,), **request), session)
    return frame.execution_plan().display_indent()


@pytest.mark.parametrize("inputs", [1, 2, 9, 64])
@pytest.mark.parametrize("requested", [{}, {"columns": ("counts", "Key")}, {"limit": 5}])
def test_groups_are_formed_in_row_order(
    inputs: int, requested: dict, tmp_path: Path, merge_input: MergeInput
):
    plan = plan_text(tmp_path, (merge_input,) * inputs, **requested)
    assert "SortExec" not in plan
    assert plan.count("DataSourceExec") == inputs
    aggregates = [line for line in plan.splitlines() if "AggregateExec" in line]
    assert len(aggregates) == 1, "once, of the merged rows"
    assert "ordering_mode=Sorted" in aggregates[0]
    assert ("SortPreservingMergeExec" in plan) == (inputs > 1)


def test_predicates_on_keys_are_for_the_scans(tmp_path: Path, merge_input: MergeInput):
    key_input = MergeInput(merge_input.url, (key_region(SCHEMA, ("a",)),))
    plan = plan_text(tmp_path, (key_input, key_input))
    scans = [line for line in plan.splitlines() if "DataSourceExec" in line]
    assert all("predicate=Key@0 = a AND time@1 > 10" in line for line in scans)


def test_unrequested_fields_are_not_read(tmp_path: Path, merge_input: MergeInput):
    plan = plan_text(tmp_path, (merge_input, merge_input), columns=("int",))
    assert plan.count("projection=[Key, time, int]") == 2
    assert "reduce_runs" not in plan


def test_a_group_of_very_many_rows_over_files_and_batches_is_one_row(tmp_path: Path):
    rows = 50_000
    counts = pa.array([[("x", 2**31 - 1), ("y", 1)]] * rows, arrow_schema(SCHEMA)[4].type)
    paths = [
        write(tmp_path / f"{n}.parquet", ["a"] * rows, [2**31 - 1] * rows, counts) for n in range(3)
    ]
    engine = EngineSettings(tmp_path, memory_bytes=32 * 1024**2)
    (batch,) = merge(MergeRequest(SCHEMA, tuple(paths), steps=(STEP,)), engine)
    wrapped = int(np.array([(2**31 - 1) * rows * 3]).astype(np.int32)[0])
    assert batch.to_pylist() == [
        {
            "Key": "a",
            "time": 100,
            "int": wrapped,
            "float": 0.5,
            "counts": [("x", wrapped), ("y", rows * 3)],
        }
    ]


def test_no_row_may_be_left(tmp_path: Path, merge_input: MergeInput):
    late = ProcessingStep(STEP.processing, now_ms=1000)
    request = MergeRequest(SCHEMA, (merge_input, merge_input), steps=(late,))
    assert sum(b.num_rows for b in merge(request, EngineSettings(tmp_path))) == 0
