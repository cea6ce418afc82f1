"""A conversation of Athena's, as recorded: requests of serialisation versions 2 and 5.

The answers' members stand in the order in which the SDK reads them.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sleeper.admin.tables import create_table
from sleeper.athena.connector import Connector
from sleeper.athena.requests import request_from_json
from sleeper.athena.service import answer
from sleeper.ingest.service import ingest_rows
from sleeper.local.instance import create_local_instance, open_local_instance
from tests.approved.approval import check_approved
from tests.clock import FakeClock
from tests.unit.athena.protocol import connector_of

Json = dict[str, Any]
RECORDED = Path(__file__).parent / "recorded"
SPILLED = re.compile("athena/2e9d-query/")
SCHEMA = """{"rowKeyFields":[{"name":"Id","type":"LongType"}],
 "valueFields":[{"name":"v","type":"StringType"},
                {"name":"n","type":"LongType","nullable":true}]}"""


@pytest.fixture
def connector(tmp_path: Path) -> Iterator[Connector]:
    create_local_instance(tmp_path / "i", "test")
    instance = open_local_instance(tmp_path / "i", FakeClock())
    create_table(instance, "Events", SCHEMA, split_points=[100, 200])
    numbers = range(0, 300, 1)
    values = {"Id": numbers, "v": [f"v{n}" for n in numbers], "n": [n or None for n in numbers]}
    ingest_rows(instance, "Events", [pa.record_batch(values)])
    yield connector_of(instance, tmp_path / "spilled")
    instance.close()


def recorded(version: int) -> dict[str, Json]:
    requests = json.loads((RECORDED / f"athena_requests_v{version}.json").read_text())
    assert isinstance(requests, dict)
    return requests


def without_chance(raw: Any, name: str = "") -> Any:
    """Returns the answer without its random parts."""
    if isinstance(raw, dict):
        return {name: without_chance(item, name) for name, item in raw.items()}
    if isinstance(raw, list):
        return [without_chance(item) for item in raw]
    if name in ("aId", "hold", "nonce", "table", "key") and isinstance(raw, str):
        place = SPILLED.match(raw)
        return f"{place[0] if place else ''}..."
    return raw


def test_both_versions_send_the_same_requests() -> None:
    old, new = recorded(2), recorded(5)
    assert old.keys() <= new.keys()
    for name, raw in old.items():
        if name != "ReadRecords":
            assert request_from_json(raw) == request_from_json(new[name])


@pytest.mark.parametrize("version", [2, 5])
def test_responses_match_the_approved_texts(connector: Connector, version: int) -> None:
    requests = recorded(version)
    answers = {name: answer(raw, connector) for name, raw in requests.items() if "split" not in raw}
    splits = answers["GetSplits"]["splits"]
    assert len(splits) == 3
    reader = requests["ReadRecords"]
    answers["ReadRecords"] = answer({**reader, "split": splits[0]}, connector)
    answers["ReadRecords, spilled"] = answer(
        {**reader, "split": splits[2], "maxInlineBlockSize": "0"}, connector
    )
    answers.setdefault(
        "GetDataSourceCapabilities", answer({**recorded(5)["GetDataSourceCapabilities"]}, connector)
    )
    sorted_rows = {name: without_chance(answers[name]) for name in sorted(answers)}
    check_approved("athena_answers.json", json.dumps(sorted_rows, indent=1) + "\n")
