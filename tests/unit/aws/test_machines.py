"""Tests of stopping tasks, jobs and clusters before their stack is deleted, with moto."""

from collections.abc import Iterator, Mapping
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from sleeper.aws.machines import Clusters, Executions, ServerlessApplication, Tasks, stop_machines
from sleeper.errors import SleeperError, UnavailableError
from tools.stop_application import stop_idle


@pytest.fixture
def clients() -> Iterator[Any]:
    """Makes clients of an account of this test."""
    with mock_aws():
        yield lambda service: boto3.client(
            service, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
        )


class Lingering:
    """Machines that end one after the other, each when it has been asked twice."""

    def __init__(self, *names: str) -> None:
        self._left = [name for name in names for _ in range(2)]

    def stop(self) -> list[str]:
        return [self._left.pop()] if self._left else []


def test_the_end_of_all_is_waited_for() -> None:
    pauses: list[float] = []
    stop_machines(Lingering("a", "b"), pauses.append, 60)
    assert len(pauses) == 4


def test_machines_that_do_not_end_are_named() -> None:
    with pytest.raises(UnavailableError, match=r"1 have not ended after 10 seconds: a \(expected"):
        stop_machines(Lingering("a", "b"), lambda _: None, 10)


def test_tasks_of_the_cluster_are_stopped(clients: Any) -> None:
    ecs, subnets = clients("ecs"), clients("ec2").describe_subnets()["Subnets"]
    ecs.register_task_definition(
        family="t", containerDefinitions=[{"name": "c", "image": "i", "memory": 8}]
    )
    network = {"awsvpcConfiguration": {"subnets": [subnets[0]["SubnetId"]]}}
    for name in ("ours", "others"):
        ecs.create_cluster(clusterName=name)
        ecs.run_task(
            cluster=name,
            taskDefinition="t",
            launchType="FARGATE",
            networkConfiguration=network,
            count=3,
        )
    stop_machines(Tasks(ecs, "ours"), lambda _: None, 60)
    assert ecs.list_tasks(cluster="ours", desiredStatus="RUNNING")["taskArns"] == []
    assert len(ecs.list_tasks(cluster="others", desiredStatus="RUNNING")["taskArns"]) == 3


class FakeServerless:
    """An application as EMR Serverless has it: it cannot be stopped while it has jobs.

    A job ends after a while, or when it was cancelled and its state was read.
    """

    def __init__(self, jobs: Mapping[str, str]) -> None:
        self.jobs = dict(jobs)
        self.state = "STARTED"

    def get_paginator(self, operation: str) -> Any:
        assert operation == "list_job_runs"
        return self

    def paginate(self, applicationId: str, states: list[str]) -> list[Any]:
        assert applicationId == "app"
        found = [{"id": name} for name, state in self.jobs.items() if state in states]
        ended = {"CANCELLING": "CANCELLED", "SUCCESS": "SUCCESS"}
        self.jobs = {name: ended.get(state, state) for name, state in self.jobs.items()}
        return [{"jobRuns": found}]

    def cancel_job_run(self, applicationId: str, jobRunId: str) -> None:
        assert applicationId == "app"
        if self.jobs[jobRunId] not in ("RUNNING", "QUEUED"):
            raise ClientError({"Error": {"Code": "ConflictException"}}, "CancelJobRun")
        self.jobs[jobRunId] = "CANCELLING"

    def get_application(self, applicationId: str) -> Any:
        assert applicationId == "app"
        self.state = {"STOPPING": "STOPPED"}.get(self.state, self.state)
        return {"application": {"state": self.state}}

    def stop_application(self, applicationId: str) -> None:
        assert applicationId == "app"
        if any(state in ("RUNNING", "QUEUED", "CANCELLING") for state in self.jobs.values()):
            raise ClientError({"Error": {"Code": "ValidationException"}}, "StopApplication")
        self.state = "STOPPING"


def test_jobs_are_cancelled_before_their_application_is_stopped() -> None:
    client: Any = FakeServerless({"a": "RUNNING", "b": "CANCELLING", "c": "QUEUED", "d": "SUCCESS"})
    stop_machines(ServerlessApplication(client, "app"), lambda _: None, 60)
    assert client.state == "STOPPED"
    assert client.jobs == {"a": "CANCELLED", "b": "CANCELLED", "c": "CANCELLED", "d": "SUCCESS"}


def test_a_deployment_stops_an_idle_application_and_cancels_no_job() -> None:
    deployed = {"sleeper.bulk.import.emr.serverless.application.id": "app"}
    client: Any = FakeServerless({"a": "SUCCESS"})
    assert stop_idle(client, {}, lambda _: None) is None
    assert stop_idle(client, deployed, lambda _: None) == "app"
    assert client.state == "STOPPED"
    client = FakeServerless({"a": "RUNNING", "b": "SUCCESS"})
    with pytest.raises(UnavailableError, match="application app has 1 jobs: a"):
        stop_idle(client, deployed, lambda _: None)
    assert (client.state, client.jobs["a"]) == ("STARTED", "RUNNING")


def test_an_error_of_emr_serverless_is_not_hidden() -> None:
    client: Any = FakeServerless({"a": "RUNNING"})

    def refuse(**_: str) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "CancelJobRun")

    client.cancel_job_run = refuse
    with pytest.raises(SleeperError, match="AccessDenied"):
        stop_machines(ServerlessApplication(client, "app"), lambda _: None, 60)


def test_executions_are_stopped_and_waited_for() -> None:
    running, asked = {"a", "b"}, []

    class FakeStates:
        def get_paginator(self, name: str) -> "FakeStates":
            assert name == "list_executions"
            return self

        def paginate(self, stateMachineArn: str, statusFilter: str) -> list[Any]:
            assert (stateMachineArn, statusFilter) == ("machine", "RUNNING")
            return [{"executions": [{"executionArn": arn}]} for arn in sorted(running)]

        def stop_execution(self, executionArn: str, cause: str) -> None:
            assert cause == "the instance is deleted"
            asked.append(executionArn)
            # The second one takes a moment.
            if executionArn == "a" or asked.count("b") == 2:
                running.discard(executionArn)

    client: Any = FakeStates()
    stop_machines(Executions(client, "machine"), lambda _: None, 60)
    assert (running, asked) == (set(), ["a", "b", "b"])


def _cluster(emr: Any, name: str, group: str) -> str:
    instances: Mapping[str, Any] = {
        "MasterInstanceType": "m5.large",
        "InstanceCount": 1,
        "KeepJobFlowAliveWhenNoSteps": True,
        "EmrManagedMasterSecurityGroup": group,
        "EmrManagedSlaveSecurityGroup": group,
    }
    started = emr.run_job_flow(
        Name=name,
        ReleaseLabel="emr-7.0.0",
        Instances=instances,
        JobFlowRole="nodes",
        ServiceRole="emr",
    )
    return str(started["JobFlowId"])


def test_clusters_with_the_security_group_are_terminated(clients: Any) -> None:
    """Names are not enough: those of an instance may begin with those of another."""
    emr = clients("emr")
    ours = [_cluster(emr, f"sleeper-a-bulk-import-{n}", "sg-ours") for n in range(12)]
    other = _cluster(emr, "sleeper-a-bulk-import-b-bulk-import-1", "sg-others")
    stop_machines(Clusters(emr, "sg-ours"), lambda _: None, 60)
    states = {
        name: emr.describe_cluster(ClusterId=name)["Cluster"]["Status"]["State"]
        for name in (*ours, other)
    }
    assert {states[name] for name in ours} == {"TERMINATED"}
    assert states[other] == "WAITING"
