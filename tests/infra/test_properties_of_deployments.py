"""What properties change in the templates, and which stop a deployment."""

from pathlib import Path

import pytest

from sleeper.errors import InvalidRequestError
from tests.infra.synthesis import Synthesis, synthesise

pytestmark = pytest.mark.slow


def _synthesise(tmp_path: Path, text: str, **context: str) -> Synthesis:
    file = tmp_path / "instance.properties"
    file.write_text(f"sleeper.id=example\n{text}")
    return synthesise(tmp_path / "out", file, **context)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """No optional stack, everything goes with the stack, a VPC given, x86."""
    return _synthesise(
        tmp_path_factory.mktemp("bare"),
        "sleeper.optional.stacks=None\nsleeper.retain.infra.after.destroy=false\n"
        "sleeper.errors.email=someone@example.org\nsleeper.lambda.cpu.architecture=X86_64\n"
        "sleeper.log.retention.days=-1\n",
        vpc="vpc-1",
        subnets="subnet-1,subnet-2",
    )


def test_optional_stacks_that_are_off_are_gone(bare: Synthesis) -> None:
    assert set(bare.templates) == {
        "Alarms", "Committer", "Instance", "Network", "Properties", "StateStore", "Storage",
        "TableIndex",
    }  # fmt: skip
    (written,) = bare.properties("Custom::SleeperProperties")
    assert "sleeper.ingest.job.queue.url" not in written["Deployed"]


def test_nothing_is_kept_if_the_property_says_so(bare: Synthesis) -> None:
    policies = {
        resource.get("DeletionPolicy", "Delete")
        for template in bare.templates.values()
        for resource in template["Resources"].values()
    }
    assert policies == {"Delete"}
    emptied = bare.properties("Custom::SleeperEmptiedBucket")
    assert len(emptied) == len(bare.of_type("AWS::S3::Bucket")) == 2


def test_alarms_are_mailed_if_an_address_is_set(bare: Synthesis) -> None:
    (subscription,) = bare.properties("AWS::SNS::Subscription")
    assert subscription["Endpoint"] == "someone@example.org"


def test_no_vpc_is_made_where_one_is_given(bare: Synthesis) -> None:
    assert bare.of_type("AWS::EC2::VPC") == {}
    (group,) = bare.properties("AWS::EC2::SecurityGroup")
    assert group["VpcId"] == "vpc-1"
    (written,) = bare.properties("Custom::SleeperProperties")
    assert written["Deployed"]["sleeper.task.subnets"] == "subnet-1,subnet-2"


def test_processor_and_log_retention_are_properties(bare: Synthesis) -> None:
    assert {tuple(p["Architectures"]) for p in bare.properties("AWS::Lambda::Function")} == {
        ("x86_64",)
    }
    assert not any("RetentionInDays" in p for p in bare.properties("AWS::Logs::LogGroup"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("sleeper.optional.stacks=IngestStack,Compactor", "sleeper.optional.stacks"),
        ("sleeper.ingest.task.cpus=2048", "sleeper.ingest.task.cpu"),
        ("sleeper.log.retention.days=31", "sleeper.log.retention.days"),
        ("sleeper.vpc=vpc-1", "sleeper.subnets"),
    ],
)
def test_a_wrong_property_stops_the_deployment_with_its_name(
    tmp_path: Path, text: str, named: str
) -> None:
    with pytest.raises(InvalidRequestError, match=named):
        _synthesise(tmp_path, text)


def test_an_instance_needs_no_file(tmp_path: Path) -> None:
    synthesis = synthesise(tmp_path, None, id="Other.One")
    (written,) = synthesis.properties("Custom::SleeperProperties")
    assert written["Set"] == {"sleeper.id": "Other.One"}
    names = {p["QueueName"] for p in synthesis.properties("AWS::SQS::Queue")}
    assert "sleeper-other-one-ingest-jobs" in names
