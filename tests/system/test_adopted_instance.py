"""Destroyed instances: their data stays, and a deployment of the same id adopts it.

Two instances whose ids begin alike are in one account. The emulator keeps what templates retain,
creates nothing twice, and imports as CloudFormation does (`ministack_nested_stacks`).
"""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper.opening import open_instance
from tests.servers.ministack import ACCOUNT, Ministack
from tests.system.deployed import define_table, deploy, destroy, stopwatch, synthesise
from tests.system.roles import find_refusals
from tools.adopt import RefusedError, check_retained, find_retained

pytestmark = pytest.mark.timeout(600)

IDS = ("keep", "keep-b")
SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [{"name": "v", "type": "StringType"}],
}
LASTING = {
    f"sleeper-keep-config-{ACCOUNT}",
    f"sleeper-keep-table-data-{ACCOUNT}",
    f"sleeper-keep-stashes-{ACCOUNT}",
    "sleeper-keep-table-index-by-id",
    "sleeper-keep-table-index-by-name",
    "sleeper-keep-table-index-by-online",
    "sleeper-keep-transaction-log",
}


def make_templates(folder: Path, instance: str, *settings: str) -> Path:
    place = folder / instance
    if not place.exists():
        define_table(place, "rows", SCHEMA, "sleeper.table.rows=latest\n")
    lines = (f"sleeper.id={instance}", "sleeper.optional.stacks=StashStack", *settings)
    (place / "instance.properties").write_text("\n".join(lines) + "\n")
    output = folder / f"out-{instance}"
    return synthesise(
        place / "instance.properties", output, lambda_platform="code", account=ACCOUNT
    )


def add_rows(instance: str, rows: Mapping[int, str]) -> None:
    with closing(open_instance(f"aws:{instance}")) as ports:
        table = sleeper.Instance(ports).table("rows")
        table.ingest(pa.table({"k": list(rows), "v": list(rows.values())}))


def read_rows(instance: str) -> dict[int, str]:
    with closing(open_instance(f"aws:{instance}")) as ports:
        found = sleeper.Instance(ports).table("rows").query().to_arrow()
    return dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


def test_a_deployment_adopts_the_data_of_a_destroyed_instance(
    emulator: Ministack, emulator_environment: dict[str, str], tmp_path: Path
) -> None:
    client, step = emulator.client, stopwatch()
    templates = {name: make_templates(tmp_path, name) for name in IDS}
    instances = {name: deploy(client, folder) for name, folder in templates.items()}
    for name in IDS:
        add_rows(name, {1: name, 2: "old"})
    step("deployed")
    destroy(instances["keep"])
    assert read_rows("keep-b") == {1: "keep-b", 2: "old"}
    step("destroyed")
    with pytest.raises(RuntimeError, match="already exists"):
        deploy(client, templates["keep"])
    destroy(instances["keep"])
    step("not created again")
    retained = find_retained(templates["keep"], "keep")
    assert set(check_retained(client, "sleeper-keep", "keep", retained)) == LASTING
    others = find_retained(templates["keep-b"], "keep-b")
    assert check_retained(client, "sleeper-keep-b", "keep-b", others) == []
    with pytest.raises(RefusedError, match=r"belongs to the stack sleeper-keep-b-"):
        check_retained(client, "sleeper-keep", "keep", others)
    with pytest.raises(RefusedError, match="its tags do not name the instance"):
        check_retained(client, "sleeper-kee", "kee", retained)
    deploy(client, templates["keep"], adopts=True)
    assert check_retained(client, "sleeper-keep", "keep", retained) == []
    assert read_rows("keep") == {1: "keep", 2: "old"}
    add_rows("keep", {2: "new", 3: "more"})
    assert read_rows("keep") == {1: "keep", 2: "new", 3: "more"}
    step("adopted")
    assert find_refusals(tmp_path / "emulator") == []
