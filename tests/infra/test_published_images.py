"""Templates of an instance whose images were published before."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.infra.synthesis import PLATFORM_STACKS, Synthesis, synthesise

REPOSITORIES = "arn:${AWS::Partition}:ecr:eu-west-2:123456789012:repository/team/sleeper"
IMAGES = "123456789012.dkr.ecr.eu-west-2.${AWS::URLSuffix}/team/sleeper"
EMR, EKS = (f"{IMAGES}/bulk-import:7-{p}-emr-7.9.0-arm64" for p in ("emr-serverless", "emr-on-eks"))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    folder = tmp_path_factory.mktemp("published")
    file = folder / "instance.properties"
    stacks = [
        "IngestStack",
        "CompactionStack",
        "QueryStack",
        *(PLATFORM_STACKS[each] for each in ("EmrServerless", "PersistentEmr", "Eks", "Adjunct")),
    ]
    file.write_text(
        f"sleeper.id=example\nsleeper.optional.stacks={','.join(stacks)}\n"
        "sleeper.network.interface.endpoints=true\n"
        "sleeper.adjunct.stores=accounts=table:accounts\n"
        "sleeper.images.registry=123456789012.dkr.ecr.eu-west-2.amazonaws.com/team/sleeper\n"
        "sleeper.images.tag=7\nsleeper.compaction.task.cpu.architecture=X86_64\n"
    )
    return synthesise(folder / "out", file)


def text(value: Any) -> str:
    """Replaces the functions of a template by texts as they appear in `Fn::Sub`."""
    if isinstance(value, str):
        return value
    if "Ref" in value:
        return f"${{{value['Ref']}}}"
    separator, parts = value["Fn::Join"]
    return str(separator.join(map(text, parts)))


def test_nothing_is_built(published: Synthesis) -> None:
    manifests = [json.loads(f.read_text()) for f in published.folder.glob("*.assets.json")]
    assert manifests
    assert all(not each.get("dockerImages") for each in manifests)
    # The context of a build.
    assert not list(published.folder.glob("asset.*/containers"))


def test_functions_have_the_image_of_their_processor(published: Synthesis) -> None:
    functions = published.properties("AWS::Lambda::Function")
    uris = [text(p["Code"]["ImageUri"]) for p in functions if p.get("PackageType") == "Image"]
    assert set(uris) == {f"{IMAGES}/function:7-arm64"}
    assert len(uris) >= 2


def test_tasks_have_the_image_of_their_processor(published: Synthesis) -> None:
    images = {
        text(p["Family"]).removeprefix("sleeper-example-"): text(container["Image"])
        for p in published.properties("AWS::ECS::TaskDefinition")
        for container in p["ContainerDefinitions"]
    }
    assert images == {
        "ingest-task": f"{IMAGES}/worker:7-arm64",
        "adjunct-task": f"{IMAGES}/worker:7-arm64",
        "compaction-task": f"{IMAGES}/worker:7-amd64",
    }


def test_bulk_imports_have_the_image_of_their_platform(published: Synthesis) -> None:
    (application,) = published.properties("AWS::EMRServerless::Application")
    assert text(application["ImageConfiguration"]["ImageUri"]) == EMR
    (resource,) = published.of_type("Custom::SleeperProperties").values()
    deployed = resource["Properties"]["Deployed"]
    uris = {text(value) for name, value in deployed.items() if name.endswith("image")}
    assert uris <= {EMR, EKS}


def test_roles_may_pull_what_they_start(published: Synthesis) -> None:
    pulled: dict[str, set[str]] = {}
    for path, resource in _pulls(published):
        pulled.setdefault(path.partition("/")[0], set()).add(text(resource))
    assert pulled["Ingest"] == {f"{REPOSITORIES}/worker"}
    assert pulled["Adjunct"] == {f"{REPOSITORIES}/worker"}
    assert pulled["PersistentEmr"] == {f"{REPOSITORIES}/bulk-import"}


def _pulls(published: Synthesis) -> Iterator[tuple[str, Any]]:
    for path, statement in published.statements():
        if "ecr:BatchGetImage" in statement["Action"]:
            yield path, statement["Resource"]


def test_nag_finds_nothing(published: Synthesis) -> None:
    report = json.loads((published.folder / "validation-report.json").read_text())
    assert report["pluginReports"] == []


def test_the_repository_of_a_deployment_that_builds_is_the_bootstraps(example: Synthesis) -> None:
    manifests = [json.loads(f.read_text()) for f in Path(example.folder).glob("*.assets.json")]
    assert any(each.get("dockerImages") for each in manifests)
