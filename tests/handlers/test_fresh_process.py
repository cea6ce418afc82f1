"""Loaded modules and start time of a function in a new process."""

import json
from pathlib import Path

import pytest

from sleeper.local.instance import create_local_instance
from tests.handlers.fresh_process import EVENT_OF, EVENTS, measure_start, run_function

DATA_LIBRARIES = {"pyarrow", "datafusion", "pandas", "numpy", "polars", "datasketches"}
# A second is meant, and two thirds to all of one are measured (`python -m benchmarks functions`).
# Other work on the machine, and byte code that is not cached yet, only add to what one start takes.
CPU_SECONDS_MAX = 1.5
STARTS_MAX = 3
PYTHONS_OBJECTS_UNTIL_COLLECTION = 700


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("functions") / "instance"
    create_local_instance(folder, "test")
    return folder


@pytest.mark.parametrize("name", EVENT_OF)
def test_a_control_plane_function_is_small_and_starts_within_a_second(
    name: str, where: Path
) -> None:
    for _ in range(STARTS_MAX):
        output = measure_start(name, where)
        if output["cpu"] <= CPU_SECONDS_MAX:
            break
    assert DATA_LIBRARIES.isdisjoint(output["loaded"])
    print(f"{name}: import {output['import']:.2f} s, ready {output['cpu']:.2f} s of processor time")
    assert output["cpu"] <= CPU_SECONDS_MAX
    assert output["objects until collection"] >= 20 * PYTHONS_OBJECTS_UNTIL_COLLECTION


def test_logs_are_json_with_the_documented_keys(where: Path) -> None:
    event = json.loads((EVENTS / "sqs-fifo.json").read_text())
    event["Records"][0]["body"] = "0a1b2c3d"
    output = run_function("collect_garbage", where, json.dumps(event))
    (line,) = [json.loads(item) for item in output[:-1]]
    assert line["level"] == "INFO"
    assert line["message"] == "skipped a table that is deleted or offline"
    assert line["table"] == "0a1b2c3d"
    assert line["service"] == "collect_garbage"
