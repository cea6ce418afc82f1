"""The account as AWS describes it. moto answers: the emulator has no quotas."""

import json
from collections.abc import Iterator

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from sleeper.aws.clients import aws_client
from sleeper.preflight.account import CONCURRENCY, VPCS
from sleeper.preflight.aws.account import AwsAccount
from sleeper.preflight.key import Key
from sleeper.properties.images import Registry


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsAccount]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    aws_client.cache_clear()
    with mock_aws():
        yield AwsAccount()
    aws_client.cache_clear()


def test_identity_bootstrap_and_quotas(account: AwsAccount) -> None:
    assert account.identity() == ("123456789012", "eu-west-2")
    assert account.bootstrap_version() is None
    boto3.client("ssm").put_parameter(
        Name="/cdk-bootstrap/hnb659fds/version", Value="27", Type="String"
    )
    assert account.bootstrap_version() == 27
    assert account.quota(VPCS) == 5
    with Stubber(aws_client("lambda")) as functions:
        functions.add_response(
            "get_account_settings", {"AccountLimit": {"ConcurrentExecutions": 10}}
        )
        assert account.quota(CONCURRENCY) == 10


def test_regions_of_services(account: AwsAccount) -> None:
    assert not account.lacks("dynamodb")
    assert not account.lacks("emr-serverless")
    assert not account.lacks("a-service-of-tomorrow")


def test_the_properties_of_the_deployed_instance(account: AwsAccount) -> None:
    assert account.deployed_properties("a") is None
    client = boto3.client("s3")
    place = {"LocationConstraint": "eu-west-2"}
    bucket = "sleeper-a-config-123456789012"
    client.create_bucket(Bucket=bucket, CreateBucketConfiguration=place)
    assert account.deployed_properties("a") is None
    client.put_object(Bucket=bucket, Key="instance.properties", Body=b"sleeper.id=a")
    assert account.deployed_properties("a") == {"sleeper.id": "a"}
    assert account.other_region("a") is None


def test_the_properties_of_an_instance_whose_id_another_region_has(account: AwsAccount) -> None:
    client = boto3.client("s3")
    place = {"LocationConstraint": "eu-west-2"}
    for bucket, region in (("", "us-east-1"), ("-eu-west-2", "eu-west-2")):
        assert account.deployed_properties("a") is None
        name = f"sleeper-a-config-123456789012{bucket}"
        client.create_bucket(Bucket=name, CreateBucketConfiguration=place)
        text = f"sleeper.id=a\nsleeper.region={region}"
        client.put_object(Bucket=name, Key="instance.properties", Body=text.encode())
        assert account.other_region("a") == "us-east-1"
    deployed = account.deployed_properties("a")
    assert deployed is not None
    assert deployed["sleeper.region"] == "eu-west-2"


def test_stacks(account: AwsAccount) -> None:
    assert not account.has_stack("A.1")
    client = boto3.client("cloudformation")
    template = '{"Resources": {"Q": {"Type": "AWS::SQS::Queue"}}}'
    client.create_stack(StackName="sleeper-a-1", TemplateBody=template)
    assert account.has_stack("A.1")
    assert not account.has_stack("A")
    with Stubber(aws_client("cloudformation")) as stacks:
        stack = {"StackName": "sleeper-a-1", "CreationTime": 0, "StackStatus": "ROLLBACK_COMPLETE"}
        stacks.add_response("describe_stacks", {"Stacks": [stack]})
        assert not account.has_stack("A.1")


def test_networks_and_routes(account: AwsAccount) -> None:
    client = boto3.client("ec2")
    vpc = client.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    client.associate_vpc_cidr_block(VpcId=vpc, CidrBlock="10.8.0.0/16")
    plain, routed = (
        client.create_subnet(VpcId=vpc, CidrBlock=f"10.7.{i}.0/24")["Subnet"]["SubnetId"]
        for i in range(2)
    )
    gateway = client.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    client.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    table = client.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    client.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    client.associate_route_table(RouteTableId=table, SubnetId=routed)
    networks = account.networks([plain, routed, "subnet-0123456789abcdef0"])
    assert networks.subnets == {plain: vpc, routed: vpc}
    assert networks.with_route == {routed}
    assert set(networks.addresses[vpc]) == {"10.7.0.0/16", "10.8.0.0/16"}
    assert vpc in account.networks([]).addresses


def test_published_images(account: AwsAccount) -> None:
    registry = Registry("123456789012", "eu-west-2", "sleeper")
    assert not account.has_image(registry, "sleeper/worker", "1-arm64")
    client = boto3.client("ecr")
    client.create_repository(repositoryName="sleeper/worker")
    assert not account.has_image(registry, "sleeper/worker", "1-arm64")
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {"digest": "sha256:" + 64 * "a", "size": 1},
        "layers": [],
    }
    client.put_image(
        repositoryName="sleeper/worker", imageManifest=json.dumps(manifest), imageTag="1-arm64"
    )
    assert account.has_image(registry, "sleeper/worker", "1-arm64")


def test_a_key_and_its_policy(account: AwsAccount) -> None:
    client = boto3.client("kms")
    arn = client.create_key(KeyUsage="ENCRYPT_DECRYPT")["KeyMetadata"]["Arn"]
    usable = Key("Enabled", "SYMMETRIC_DEFAULT", "ENCRYPT_DECRYPT", "CUSTOMER")
    assert account.find_key(arn) == usable
    client.disable_key(KeyId=arn.rpartition("/")[2])
    assert account.find_key(arn) != usable
    assert account.find_key(f"{arn[:-8]}00000000") is None
    assert '"Statement"' in account.key_policy(arn)
