"""The synthesised templates, deployed to an emulator that runs the functions' real zip."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.ministack import Ministack
from tests.system.deployed import DeployedInstance, deployed

pytestmark = pytest.mark.timeout(600)

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "deploy"


@pytest.fixture(scope="module")
def instance(
    ministack_server: Ministack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DeployedInstance]:
    """The example, with its table."""
    folder = tmp_path_factory.mktemp("deployed")
    shutil.copytree(EXAMPLE, folder / "example")
    file = folder / "example" / "instance.properties"
    with deployed(
        ministack_server.client, file, folder / "out", lambda_platform="local"
    ) as created:
        yield created


def _sleeper(server: Ministack, *arguments: str) -> str:
    process = subprocess.run(
        [Path(sys.executable).with_name("sleeper"), "--instance", "aws:example", *arguments],
        env={**os.environ, **server.environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_every_resource_comes_up(instance: DeployedInstance) -> None:
    resources = [resource for made in instance.stacks().values() for resource in made]
    assert len(resources) > 200
    assert {r["ResourceStatus"] for r in resources} == {"CREATE_COMPLETE"}


def test_the_table_of_the_folder_exists_with_its_split_points(
    instance: DeployedInstance, ministack_server: Ministack
) -> None:
    assert instance.outputs["Instance"] == "aws:example"
    report = _sleeper(ministack_server, "report", "partitions", "--output", "json")
    partitions = [json.loads(line) for line in report.splitlines()]
    assert {p["table"] for p in partitions} == {"flights"}
    assert len([p for p in partitions if p.get("leaf")]) == 3


def test_a_message_starts_a_task_that_knows_its_instance(
    instance: DeployedInstance, ministack_server: Ministack
) -> None:
    sqs = instance.client("sqs")
    url = sqs.get_queue_url(QueueName="sleeper-example-ingest-jobs")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody='{"id":"j","tableName":"flights","files":["b/f"]}')
    function = "sleeper-example-start-tasks-ingest"
    answer = instance.client("lambda").invoke(FunctionName=function, Payload=b"{}")
    assert json.loads(answer["Payload"].read())["failures"] == 0
    tasks = instance.client("ecs").list_tasks(
        cluster="sleeper-example-tasks", family="sleeper-example-ingest-task"
    )
    assert len(tasks["taskArns"]) == 1
    environment = instance.task_environment("sleeper-example-ingest-task")
    assert environment == {
        **environment,
        "SLEEPER_INSTANCE": "aws:example",
        "SLEEPER_CONFIG_BUCKET": instance.outputs["ConfigBucket"],
        "SLEEPER_TASK_KIND": "ingest",
    }


def test_the_dashboard_shows_existing_queues_and_functions(
    instance: DeployedInstance,
) -> None:
    name = instance.outputs["DashboardName"]
    dashboard = instance.client("cloudwatch").get_dashboard(DashboardName=name)
    values: dict[str, set[str]] = {"QueueName": set(), "FunctionName": set()}
    for widget in json.loads(dashboard["DashboardBody"])["widgets"]:
        for metric in widget["properties"].get("metrics", ()):
            if metric[0] in ("AWS/SQS", "AWS/Lambda"):
                values[metric[2]].add(metric[3])
    urls = instance.client("sqs").list_queues(QueueNamePrefix="sleeper-example-")["QueueUrls"]
    queues = {url.rpartition("/")[2] for url in urls}
    # Clients take their results from this one, at their own pace.
    assert values["QueueName"] == queues - {"sleeper-example-query-results"}
    pages = instance.client("lambda").get_paginator("list_functions").paginate()
    functions = {f["FunctionName"] for page in pages for f in page["Functions"]}
    assert values["FunctionName"] <= functions
    assert "sleeper-example-commit-transactions" in values["FunctionName"]
