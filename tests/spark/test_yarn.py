"""The driver's container on clusters of EMR, as Spark's YARN client describes it."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sleeper.aws.emr_cluster import cluster_request
from sleeper.bulk_import import start
from sleeper.jobs.queue import Message
from sleeper.jobs.spark_platform import MAIN_FILE, PYTHON, RunOutcome, RunState
from sleeper.properties.deployed import EMR_IMAGE, EMR_MAIN_FILE
from tests.infra.synthesis import ROOT
from tests.spark.imports import instance_to_import_into
from tests.spark.java import find_java
from tests.spark.yarn_client import YarnClient, yarn_client
from tests.unit.aws.test_spark_platforms import IMAGE, JOB, PLACE, SIZE

BUCKET, KEY = PLACE.main_file.removeprefix("s3://").split("/")
SOURCE = ROOT / "containers" / "bulk_import" / "main.py"
Command = tuple[str, ...]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnClient]:
    """A client that sees the object of the deployment."""
    if find_java() is None:
        pytest.skip("Spark needs Java 17: `make install` says how to get it")
    objects, folder = (tmp_path_factory.mktemp(name) for name in (BUCKET, "client"))
    shutil.copy(SOURCE, objects / KEY)
    with yarn_client(folder, BUCKET, objects) as made:
        yield made


def transient_command() -> Command:
    """Returns the command of the step of a cluster that EMR creates for a job."""
    (step,) = cluster_request(PLACE, SIZE, JOB)["Steps"]
    return tuple(step["HadoopJarStep"]["Args"])


def persistent_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Returns the command of a process on the main node of a persistent cluster."""
    commands: list[Command] = []

    def record(command: Command) -> RunOutcome:
        commands.append(command)
        return RunOutcome(RunState.SUCCEEDED)

    monkeypatch.setattr(start, "run_command", record)
    deployed_values = {EMR_IMAGE.name: IMAGE, EMR_MAIN_FILE.name: PLACE.main_file}
    with instance_to_import_into(folder, deployed_values) as instance:
        body = {"id": JOB.job_id, "tableName": "t", "files": ["bucket/rows"]}
        message = Message("m", json.dumps(body), "", 1, instance.clock())
        start.run_persistent_import(instance, message)
    (command,) = commands
    return command


@pytest.mark.parametrize("platform", ["transient", "persistent"])
def test_the_driver_s_file_is_in_its_container(
    platform: str, client: YarnClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_transient = platform == "transient"
    command = transient_command() if is_transient else persistent_command(tmp_path, monkeypatch)
    container = client.describe_container(command)
    assert container.main_file == KEY
    assert container.files[KEY].read_bytes() == SOURCE.read_bytes()
    assert container.environment["PYSPARK_PYTHON"] == PYTHON
    assert container.environment["YARN_CONTAINER_RUNTIME_DOCKER_IMAGE"] == IMAGE
    arguments = command[command.index(PLACE.main_file) + 1 :]
    words = [word.strip("'") for word in container.command]
    passed = [words[i + 1] for i, word in enumerate(words) if word == "--arg"]
    assert passed == list(arguments)


def test_a_file_of_the_image_does_not_reach_the_container(client: YarnClient) -> None:
    words = (MAIN_FILE if word == PLACE.main_file else word for word in transient_command())
    container = client.describe_container(tuple(words))
    assert container.main_file == "main.py"
    assert "main.py" not in container.files
