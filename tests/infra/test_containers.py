"""Images as their Dockerfiles make them, without a container engine."""

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import sleeper
from sleeper.aws.spark_platforms import EmrServerless, execution_input
from sleeper.jobs.queue import QueueName
from sleeper.jobs.spark_platform import PYTHON as SPARK_PYTHON
from sleeper.jobs.spark_platform import PlatformJob
from sleeper.local.instance import open_local_instance
from tests.infra.dockerfile import Stage, read_stages
from tests.infra.root_filesystem import NOBODY, PACKAGES, PYTHON, Root, make_root, why_impossible
from tests.infra.synthesis import ROOT, Synthesis
from tests.infra.test_code import OF_IMAGES
from tests.spark.java import VARIABLE as JAVA_OPTIONS
from tests.unit.aws.test_spark_platforms import ROLE, Recorder

FOLDER = ROOT / "containers"
NAMES = sorted(file.parent.name for file in FOLDER.glob("*/Dockerfile"))
SCHEMA = {
    "rowKeyFields": [{"name": "city", "type": "StringType"}],
    "valueFields": [{"name": "people", "type": "LongType"}],
}
# What base images have.
PROVIDED = {"bulk_import": ("pyspark",)}
_IMPOSSIBLE = why_impossible()
in_root = pytest.mark.skipif(_IMPOSSIBLE is not None, reason=str(_IMPOSSIBLE))


def final_stage(name: str) -> Stage:
    return read_stages(FOLDER / name / "Dockerfile")[-1]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make images` gives to the engine."""
    from tools.images import stage_context

    folder = tmp_path_factory.mktemp("context") / "context"
    stage_context(folder)
    return folder


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory, context: Path) -> dict[str, Root]:
    parent = tmp_path_factory.mktemp("roots")
    # As in a clone that only its owner can read.
    private = parent / "context"
    shutil.copytree(context, private)
    for path in (private, *private.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    results = {}
    for name in NAMES:
        own = context / "containers" / name / "requirements.txt"
        pins = own if own.exists() else context / "containers" / "requirements.txt"
        results[name] = make_root(
            parent / name, final_stage(name), private, pins, PROVIDED.get(name, ())
        )
    return results


def _files(folder: Path) -> set[str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)) for path in paths}


def test_a_deployment_and_make_images_build_from_the_same_files(
    example: Synthesis, context: Path
) -> None:
    staged = [each for each in example.folder.glob("asset.*") if (each / "containers").is_dir()]
    assert staged
    assert {frozenset(_files(each)) for each in staged} == {frozenset(_files(context))}


@pytest.mark.parametrize("name", NAMES)
def test_every_source_is_in_the_context(name: str, context: Path) -> None:
    copies = list(final_stage(name).copies())
    assert copies
    missing = {s for copy in copies for s in copy.sources if not (context / s).exists()}
    assert missing == set()


@pytest.mark.parametrize("name", NAMES)
def test_the_user_has_no_rights(name: str) -> None:
    stage = final_stage(name)
    if "lambda/" in stage.base:
        # Lambda runs every image as a user of its own.
        assert stage.user is None
    else:
        assert stage.user not in (None, "root", "0", "root:root")


@pytest.mark.parametrize("name", NAMES)
def test_bases_are_of_the_public_registry_of_ecr(name: str) -> None:
    """Docker Hub limits how often it answers, and a tag names the release."""
    bases = [stage.base for stage in read_stages(FOLDER / name / "Dockerfile")]
    assert all(each.startswith("public.ecr.aws/") and ":" in each for each in bases)


@in_root
def test_a_worker_ingests_and_ends_when_there_is_no_job(
    roots: dict[str, Root], tmp_path: Path
) -> None:
    folder = tmp_path / "instance"
    with sleeper.create_instance(folder, {"sleeper.task.idle.stop.seconds": "1"}) as instance:
        instance.create_table("cities", SCHEMA)
    (folder / "rows.csv").write_text("city,people\nOslo,500\nAthens,700\n")
    job = {"id": "j1", "tableName": "cities", "files": ["/instance/rows.csv"]}
    with closing(open_local_instance(folder)) as ports:
        ports.jobs.queue(QueueName.INGEST).send(json.dumps(job))
    for path in (folder, *folder.rglob("*")):
        shutil.chown(path, NOBODY, NOBODY)
    variables = {"SLEEPER_INSTANCE": "/instance", "SLEEPER_TASK_KIND": "ingest"}
    ended = roots["worker"].run([*PYTHON, "main.py"], variables, {"/instance": folder})
    assert (ended.returncode, ended.stderr) == (0, "")
    with sleeper.open_instance(folder) as instance:
        assert len(instance["cities"]) == 2


@in_root
def test_the_root_is_read_only_and_the_packages_are_the_pins(roots: dict[str, Root]) -> None:
    program = "import os, pathlib; print(os.getuid()); pathlib.Path('/tmp/a').touch()"
    ended = roots["worker"].run([*PYTHON, "-c", program], {})
    assert ended.stdout.split() == [str(NOBODY)], ended.stderr
    for target in ("/app/a", "/a", "/packages/a"):
        program = f"import pathlib; pathlib.Path('{target}').touch()"
        assert "Read-only file system" in roots["worker"].run([*PYTHON, "-c", program], {}).stderr
    ended = roots["worker"].run([*PYTHON, "-c", "import pytest"], {})
    assert "No module named 'pytest'" in ended.stderr


@in_root
def test_the_service_of_adjunct_stores_starts(roots: dict[str, Root]) -> None:
    variables = {"SLEEPER_ADJUNCT_STORES": "a=table:a", "SLEEPER_ADJUNCT_PATH": "/stores"}
    check = [*PYTHON, "-m", "sleeper.adjunct.worker_task", "check"]
    ended = roots["worker"].run(check, variables)
    # It is not healthy before its stores exist.
    assert (ended.returncode, ended.stderr) == (1, "")


@in_root
def test_every_handler_of_the_image_loads(roots: dict[str, Root]) -> None:
    program = "".join(f"import lambdas.{name}.handler\n" for name in sorted(OF_IMAGES))
    ended = roots["function"].run(
        [*PYTHON, "-c", program + "print('loaded')"],
        {"AWS_DEFAULT_REGION": "eu-west-2", "SLEEPER_INSTANCE": "aws:here"},
    )
    assert ended.stdout == "loaded\n", ended.stderr


SUBMIT = f"{PACKAGES}/pyspark/bin/spark-submit"
IMAGE = "registry/bulk-import:1"


def make_python(root: Root) -> None:
    """Makes the Python of the image, which alone finds the packages."""
    file = root.folder / SPARK_PYTHON.lstrip("/")
    file.parent.mkdir(exist_ok=True)
    packages = f"/opt/sleeper/venv/lib/python3.11/site-packages:{PACKAGES}"
    variables = f'PYTHONPATH="{packages}:$PYTHONPATH"'
    file.write_text(f'#!/bin/sh\n{variables} exec {shlex.join(PYTHON)} "$@"\n')
    file.chmod(0o755)


def submit_eks(job: PlatformJob) -> tuple[list[str], dict[str, str]]:
    """Returns the arguments and the environment of the pod, as Kubernetes expands them."""
    pod = execution_input(job, IMAGE)
    fields = {"POD_IP": "127.0.0.1", "POD_NAME": "driver"}
    values = {
        each["name"]: each.get("value") or fields[each["name"]] for each in pod["environment"]
    }
    return [re.sub(r"\$\((\w+)\)", lambda m: values[m[1]], a) for a in pod["arguments"]], values


def submit_serverless(job: PlatformJob) -> tuple[list[str], dict[str, str]]:
    """Returns what EMR Serverless does in a container with a job run, after its documentation."""
    client = Recorder(start_job_run={"jobRunId": "r1"})
    EmrServerless(client, "application", ROLE, "log").submit(job)
    ((_, request),) = client.requests
    run = request["jobDriver"]["sparkSubmit"]
    options = shlex.split(run["sparkSubmitParameters"])
    prefix = "spark.emr-serverless.driverEnv."
    settings = (option.split("=", 1) for option in options if option.startswith(prefix))
    arguments = ["--master", "local[1]", *options, run["entryPoint"], *run["entryPointArguments"]]
    return arguments, {name.removeprefix(prefix): value for name, value in settings}


@in_root
@pytest.mark.parametrize("submit", [submit_eks, submit_serverless])
def test_spark_starts_the_driver_of_the_image_with_its_python(
    submit: Callable[[PlatformJob], tuple[list[str], dict[str, str]]],
    roots: dict[str, Root],
    tmp_path: Path,
) -> None:
    root = roots["bulk_import"]
    make_python(root)
    with sleeper.create_instance(tmp_path / "instance"):
        pass
    for path in (tmp_path / "instance", *(tmp_path / "instance").rglob("*")):
        shutil.chown(path, NOBODY, NOBODY)
    body = json.dumps({"id": "j1", "tableName": "cities", "files": ["/instance/rows.csv"]})
    job = PlatformJob("r1", "j1", ("/instance", body), {"spark.driver.memory": "512M"})
    arguments, variables = submit(job)
    home = {"SPARK_HOME": f"{PACKAGES}/pyspark", "PYTHONPATH": ""}
    home[JAVA_OPTIONS] = os.environ.get(JAVA_OPTIONS, "")
    ended = root.run(
        [SUBMIT, *arguments], {**variables, **home}, {"/instance": tmp_path / "instance"}
    )
    assert "error: no table is named 'cities'" in ended.stdout, ended.stderr
    assert ended.returncode == 1
