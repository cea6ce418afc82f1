"""A conversation of Athena's, as its SDK wrote it: requests of serialisation versions 2 to 6.

The answers' members stand in the order in which the SDK reads them.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sleeper.athena.connector import Connector
from sleeper.athena.service import answer
from sleeper.local.instance import create_local_instance, open_local_instance
from tests.approved.approval import check_approved
from tests.clock import FakeClock
from tests.unit.athena.protocol import among, connector_of
from tests.unit.athena.recorded import VERSIONS, first_request, make_types_table, recorded_requests

SPILLED = re.compile("athena/query-1/")
READ = "ReadRecordsRequest"
KINDS = sorted({raw["@type"] for _, raw in recorded_requests()} - {READ})


@pytest.fixture
def connector(tmp_path: Path) -> Iterator[Connector]:
    create_local_instance(tmp_path / "i", "test")
    instance = open_local_instance(tmp_path / "i", FakeClock())
    make_types_table(instance)
    yield connector_of(instance, tmp_path / "spilled")
    instance.close()


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


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_match_the_approved_texts(connector: Connector, version: int) -> None:
    requests = {kind: first_request(version, kind) for kind in KINDS}
    # Versions before 4 have no such request.
    offers = "GetDataSourceCapabilitiesRequest"
    assert (requests[offers] is None) == (version < 4)
    requests[offers] = first_request(6, offers)
    answers = {kind: answer(raw, connector) for kind, raw in requests.items()}
    splits = answers["GetSplitsRequest"]["splits"]
    assert len(splits) == 3
    reader = {
        **(first_request(version, READ) or {}),
        "schema": answers["GetTableRequest"]["schema"],
        "constraints": {"summary": {"id": among(pa.int64(), 7, 202)}},
    }
    answers[READ] = answer({**reader, "split": splits[0]}, connector)
    spilled = {**reader, "split": splits[2], "maxInlineBlockSize": "0"}
    answers[f"{READ}, spilled"] = answer(spilled, connector)
    sorted_answers = {kind: without_chance(answers[kind]) for kind in sorted(answers)}
    check_approved("athena_answers.json", json.dumps(sorted_answers, indent=1) + "\n")
