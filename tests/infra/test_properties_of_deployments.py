"""Effects of properties on the templates, and properties that prevent a deployment."""

import json
from pathlib import Path

import pytest

from sleeper.errors import InvalidRequestError
from tests.infra.synthesis import ROOT, Synthesis, synthesise

ALARM = "AWS::CloudWatch::Alarm"
_SCHEMA = '{"rowKeyFields": [{"name": "k", "type": "StringType"}]}'


def _synthesise(tmp_path: Path, text: str, **context: str) -> Synthesis:
    file = tmp_path / "instance.properties"
    file.write_text(f"sleeper.id=example\n{text}")
    return synthesise(tmp_path / "out", file, **context)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """A paused instance without optional stacks or retained data, in a given VPC, on x86."""
    return _synthesise(
        tmp_path_factory.mktemp("bare"),
        "sleeper.optional.stacks=None\nsleeper.retain.infra.after.destroy=false\n"
        "sleeper.errors.email=someone@example.org\nsleeper.lambda.cpu.architecture=X86_64\n"
        "sleeper.log.retention.days=-1\n",
        vpc="vpc-1",
        subnets="subnet-1,subnet-2",
        deployPaused="true",
    )


def test_disabled_optional_stacks_are_absent(bare: Synthesis) -> None:
    assert set(bare.templates) == {
        "Alarms", "ClientRoles", "Committer", "Deletion", "Instance", "Network", "Properties",
        "StateStore", "Storage", "TableIndex", "Watch",
    }  # fmt: skip
    (resource,) = bare.properties("Custom::SleeperProperties")
    assert "sleeper.ingest.job.queue.url" not in resource["Deployed"]


def test_no_resource_is_retained_if_the_property_is_unset(bare: Synthesis) -> None:
    policies = {
        resource.get("DeletionPolicy", "Delete")
        for template in bare.templates.values()
        for resource in template["Resources"].values()
    }
    assert policies == {"Delete"}
    emptied = bare.properties("Custom::SleeperEmptiedBucket")
    assert len(emptied) == len(bare.of_type("AWS::S3::Bucket")) == 2


def test_tables_removed_with_the_stack_are_not_protected(bare: Synthesis) -> None:
    (resource,) = bare.properties("Custom::SleeperProperties")
    assert resource["Protect"] == "false"


def test_alarms_are_mailed_if_an_address_is_set(bare: Synthesis) -> None:
    (subscription,) = bare.properties("AWS::SNS::Subscription")
    assert subscription["Endpoint"] == "someone@example.org"
    (metadata,) = bare.folder.glob("sleeper-*.metadata.json")
    assert "nobody receives" not in metadata.read_text()


def test_a_paused_deployment_disables_schedules_and_silences_their_alarms(
    bare: Synthesis, example: Synthesis
) -> None:
    (resource,) = bare.properties("Custom::SleeperProperties")
    assert resource["Deployed"]["sleeper.schedule.alarms"] == "sleeper-example-watch-stopped"
    states = {p["State"] for p in bare.properties("AWS::Events::Rule")}
    silent = [p["AlarmName"] for p in bare.properties(ALARM) if not p["ActionsEnabled"]]
    assert (states, silent) == ({"DISABLED"}, ["sleeper-example-watch-stopped"])
    # Without it, the next deployment enables them.
    states = {p["State"] for p in example.properties("AWS::Events::Rule")}
    assert states == {"ENABLED"}
    assert all(p["ActionsEnabled"] for p in example.properties(ALARM))


def test_a_given_vpc_is_used(bare: Synthesis) -> None:
    assert bare.of_type("AWS::EC2::VPC") == {}
    (group,) = bare.properties("AWS::EC2::SecurityGroup")
    assert group["VpcId"] == "vpc-1"
    (resource,) = bare.properties("Custom::SleeperProperties")
    deployed_values = resource["Deployed"]
    assert (
        deployed_values["sleeper.task.subnets"]
        == deployed_values["sleeper.subnets"]
        == "subnet-1,subnet-2"
    )
    assert deployed_values["sleeper.vpc"] == "vpc-1"
    assert "sleeper.network.vpc.created" not in deployed_values


def test_stack_names_match_gchq_sleeper(bare: Synthesis) -> None:
    (resource,) = bare.properties("Custom::SleeperProperties")
    # Its clients refuse "None", and read a comma as an empty list.
    assert resource["Set"]["sleeper.optional.stacks"] == ","


def test_a_folder_saved_from_an_instance_of_gchq_sleeper_synthesises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = (ROOT / "core/sleeper/properties/gchq_properties.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in names if not line.startswith("#")]
    own = {"sleeper.id", "sleeper.optional.stacks", "sleeper.account", "sleeper.region"}
    # A deployed instance has every deployment's property, and users' with their defaults.
    content = [
        f"{name}={default if java_name == 'instance' else 'written'}"
        for java_name, name, default in rows
        if name not in own and java_name != "table" and default != "null" and default[:2] != " +"
    ]
    text = "\n".join((*content, "sleeper.vpc=vpc-1", "sleeper.subnets=subnet-1"))
    for i in range(8):  # inline, they would exceed a template
        points = "".join(f"{n:0100}\n" for n in range(1900))
        folder = tmp_path / "tables" / f"t{i}"
        folder.mkdir(parents=True)
        (folder / "schema.json").write_text(_SCHEMA)
        (folder / "splits.txt").write_text(f"{points}x{i}\n")
    stacks = "IngestStack,EmrStudioStack,CompactionStack,GarbageCollectorStack,QueryStack"
    synthesis = _synthesise(tmp_path, f"{text}\nsleeper.optional.stacks={stacks}\n")
    (resource,) = synthesis.properties("Custom::SleeperProperties")
    assert resource["Set"]["sleeper.optional.stacks"] == stacks
    assert "written" not in resource["Set"].values()
    assert {"Ingest", "GarbageCollection", "Query"} <= set(synthesis.templates)
    tables = synthesis.properties("Custom::SleeperTable")
    assert len({each["SplitPointsKey"] for each in tables}) == 8
    assert len(json.dumps(synthesis.templates["Properties"])) < 200_000
    assert "optional stack EmrStudioStack means nothing here" in capsys.readouterr().err


def test_processor_and_log_retention_are_properties(bare: Synthesis) -> None:
    assert {tuple(p["Architectures"]) for p in bare.properties("AWS::Lambda::Function")} == {
        ("x86_64",)
    }
    assert not any("RetentionInDays" in p for p in bare.properties("AWS::Logs::LogGroup"))


@pytest.mark.parametrize(
    ("text", "expected_name"),
    [
        ("sleeper.optional.stacks=IngestStack,Compactor", "sleeper.optional.stacks"),
        ("sleeper.ingest.task.cpus=2048", "sleeper.ingest.task.cpu"),
        ("sleeper.log.retention.days=31", "sleeper.log.retention.days"),
        ("sleeper.vpc=vpc-1", "sleeper.subnets"),
    ],
)
def test_an_invalid_property_is_named_and_stops_the_deployment(
    tmp_path: Path, text: str, expected_name: str
) -> None:
    with pytest.raises(InvalidRequestError, match=expected_name):
        _synthesise(tmp_path, text)


def test_an_instance_needs_no_file(tmp_path: Path) -> None:
    synthesis = synthesise(tmp_path, None, id="Other.One")
    (resource,) = synthesis.properties("Custom::SleeperProperties")
    assert resource["Set"] == {"sleeper.id": "Other.One"}
    names = {p["QueueName"] for p in synthesis.properties("AWS::SQS::Queue")}
    assert "sleeper-other-one-ingest-jobs" in names
