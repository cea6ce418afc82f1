"""The network that a deployment creates, which has interface endpoints only if asked for."""

from pathlib import Path

import pytest

from sleeper.errors import InvalidRequestError
from tests.infra.synthesis import Synthesis, synthesise

_PARTS = "IngestStack,CompactionStack,AdjunctStack"


def deployed(folder: Path, parts: str) -> Synthesis:
    file = folder / "instance.properties"
    file.write_text(
        f"sleeper.id=example\nsleeper.optional.stacks={parts}\n"
        "sleeper.adjunct.stores=accounts=table:accounts\n"
    )
    return synthesise(folder / "out", file)


def test_tasks_reach_services_by_public_addresses_without_a_cost_while_idle(tmp_path: Path) -> None:
    public = deployed(tmp_path, _PARTS)
    endpoints = public.properties("AWS::EC2::VPCEndpoint")
    assert [p["VpcEndpointType"] for p in endpoints] == ["Gateway"] * 2
    assert public.of_type("AWS::EC2::NatGateway") == {}
    assert len(public.of_type("AWS::EC2::InternetGateway")) == 1
    (service,) = public.properties("AWS::ECS::Service")
    network = service["NetworkConfiguration"]["AwsvpcConfiguration"]
    assert network["AssignPublicIp"] == "ENABLED"
    subnets = public.of_type("AWS::EC2::Subnet")
    assert len(subnets) == 4
    assert not any(each["Properties"].get("MapPublicIpOnLaunch") for each in subnets.values())
    (resource,) = public.properties("Custom::SleeperProperties")
    used = str(resource["Deployed"]["sleeper.task.subnets"])
    assert "public" in used
    assert "tasksSubnet" not in used
    groups = public.properties("AWS::EC2::SecurityGroup")
    assert not any("SecurityGroupIngress" in group for group in groups)


def test_platforms_that_need_endpoints_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="EmrBulkImportStack needs the"):
        deployed(tmp_path, "EmrBulkImportStack")
