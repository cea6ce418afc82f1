"""The task of adjunct stores, started when CloudFormation creates its service.

Only what must exist at that moment is deployed, which is the worst order that CloudFormation may
choose. The service is stable, and the deployment continues, only if the task fills its stores then.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sleeper.adjunct.versions.folder import StoreFolder
from sleeper.adjunct.versions.status import read_report
from sleeper.opening import open_instance
from tests.infra.creation_order import preceding
from tests.servers.ministack import Ministack
from tests.system.deployed import define_table, deploy, synthesise
from tests.system.roles import credentials_of

pytestmark = pytest.mark.timeout(300)

INSTANCE = """
sleeper.id=Early
sleeper.optional.stacks=AdjunctStack
sleeper.adjunct.stores=accounts=table:accounts
"""
ACCOUNTS = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [{"name": "name", "type": "StringType"}],
}
_WAIT_SECONDS = 60


def test_the_task_fills_its_stores_when_its_service_is_created(
    emulator: Ministack, emulator_environment: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    # So many that they are an asset of the deployment.
    splits = range(-9 * 10**18, 9 * 10**18, 2 * 10**16)
    define_table(folder, "accounts", ACCOUNTS, "sleeper.table.rows=latest\n", *map(str, splits))
    (folder / "instance.properties").write_text(INSTANCE)
    templates = synthesise(folder / "instance.properties", tmp_path / "out", lambda_platform="code")
    keep_what_precedes_the_service(templates)
    instance = deploy(emulator.client, templates)
    with (
        closing(open_instance("aws:Early")) as opened,
        opened.table("accounts").state.reading() as state,
    ):
        assert len(list(state.partitions.leaves())) == len(splits) + 1
    definition = instance.client("ecs").describe_task_definition(
        taskDefinition="sleeper-early-adjunct-task"
    )["taskDefinition"]
    (container,) = definition["containerDefinitions"]
    variables = {
        **os.environ,
        **emulator_environment,
        **credentials_of(instance.client, definition["taskRoleArn"]),
        **instance.task_environment(definition["family"]),
        "SLEEPER_ADJUNCT_PATH": str(tmp_path / "stores"),
        # A task begins without a state.
        "SLEEPER_STATE_FOLDER": str(tmp_path / "state-of-task"),
    }
    command = [sys.executable, *container["entryPoint"][1:]]
    with (
        (tmp_path / "task.log").open("wb") as log,
        subprocess.Popen(command, env=variables, stdout=log, stderr=log) as process,
    ):
        try:
            wait_for_the_store(tmp_path / "stores", process)
        finally:
            process.terminate()
    health = subprocess.run([*command, "check"], env=variables, check=False)
    assert health.returncode == 0


def wait_for_the_store(stores: Path, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while (report := read_report(StoreFolder(stores, "accounts"))) is None or not report.updated_ms:
        assert process.poll() is None, "the task ended"
        assert time.monotonic() < deadline, report
        time.sleep(0.1)


def keep_what_precedes_the_service(templates: Path) -> None:
    """Removes all other resources from the templates."""
    (outer,) = (p for p in templates.glob("*.template.json") if ".nested." not in p.name)
    (inner,) = templates.glob("*Adjunct*.nested.template.json")
    whole, stack = json.loads(outer.read_text()), json.loads(inner.read_text())
    (nested,) = (name for name in whole["Resources"] if name.startswith("AdjunctNestedStack"))
    (service,) = (n for n, r in stack["Resources"].items() if r["Type"] == "AWS::ECS::Service")
    outer.write_text(json.dumps(only(whole, {nested, *preceding(whole, nested)})))
    inner.write_text(json.dumps(only(stack, preceding(stack, service))))


def only(template: dict[str, Any], names: set[str]) -> dict[str, Any]:
    resources = {name: each for name, each in template["Resources"].items() if name in names}
    return {**template, "Resources": resources}
