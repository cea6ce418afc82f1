"""The account of the credentials, as the preflight asks about it."""

from collections.abc import Mapping, Sequence
from typing import Any

import boto3
from botocore.exceptions import ClientError

from sleeper.aws.clients import aws_client, config_bucket_names
from sleeper.aws.config_bucket import INSTANCE_FILE
from sleeper.aws.errors import error_code, translate_errors
from sleeper.preflight.account import (
    CONCURRENCY,
    EMR_SERVERLESS_CORES,
    FARGATE_CORES,
    VPCS,
    Networks,
)
from sleeper.preflight.key import Key
from sleeper.properties.deployed import stack_name
from sleeper.properties.images import Registry
from sleeper.properties.instance import REGION
from sleeper.properties.java_text import read_properties_text

_BOOTSTRAP_PARAMETER = "/cdk-bootstrap/hnb659fds/version"
# The service and the code of a quota at Service Quotas, which shows the default of Lambda's also
# for new accounts that have less.
_CODES = {
    FARGATE_CORES: ("fargate", "L-3032A538"),
    EMR_SERVERLESS_CORES: ("emr-serverless", "L-D05C8A75"),
    VPCS: ("vpc", "L-F678F1CE"),
}
_MISSING_STACK = "ValidationError"
# It has only a change set, or its first deployment was rolled back.
_EMPTY_STACKS = {"REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE"}
_DEFAULT_ROUTE = "0.0.0.0/0"


class AwsAccount:
    """Implements `sleeper.preflight.account.Account`."""

    def identity(self) -> tuple[str, str]:
        with translate_errors("the AWS account of the credentials"):
            client = aws_client("sts")
            return client.get_caller_identity()["Account"], client.meta.region_name

    def bootstrap_version(self) -> int | None:
        client = aws_client("ssm")
        with translate_errors(f"parameter {_BOOTSTRAP_PARAMETER}"):
            try:
                found = client.get_parameter(Name=_BOOTSTRAP_PARAMETER)
            except client.exceptions.ParameterNotFound:
                return None
        return int(found["Parameter"]["Value"])

    def quota(self, name: str) -> float:
        with translate_errors(f"the quota of {name}"):
            if name == CONCURRENCY:
                limits = aws_client("lambda").get_account_settings()["AccountLimit"]
                return float(limits["ConcurrentExecutions"])
            service, code = _CODES[name]
            client = aws_client("service-quotas")
            found = client.get_service_quota(ServiceCode=service, QuotaCode=code)
            return float(found["Quota"]["Value"])

    def networks(self, subnets: Sequence[str]) -> Networks:
        with translate_errors("the networks of the region"):
            client = aws_client("ec2")
            vpcs = _pages(client, "describe_vpcs", "Vpcs")
            addresses = {
                each["VpcId"]: [
                    part["CidrBlock"] for part in each.get("CidrBlockAssociationSet", ())
                ]
                or [each["CidrBlock"]]
                for each in vpcs
            }
            if not subnets:
                return Networks(addresses, {})
            chosen = [{"Name": "subnet-id", "Values": list(subnets)}]
            found = _pages(client, "describe_subnets", "Subnets", Filters=chosen)
            owners = {each["SubnetId"]: each["VpcId"] for each in found}
            owned = [{"Name": "vpc-id", "Values": sorted(set(owners.values()))}]
            tables = _pages(client, "describe_route_tables", "RouteTables", Filters=owned)
            return Networks(addresses, owners, _routed(owners, tables))

    def lacks(self, service: str) -> bool:
        region = aws_client("sts").meta.region_name
        session = boto3.Session()
        partition = session.get_partition_for_region(region)
        regions = session.get_available_regions(service, partition_name=partition)
        # The client's list is empty for services that are everywhere, or too new for it.
        return bool(regions) and region not in regions

    def deployed_properties(self, instance_id: str) -> Mapping[str, str] | None:
        names = config_bucket_names(instance_id)
        files = (_read_properties(name) for name in (names.plain, names.with_region))
        here = (each for each in files if each and _region(each, names.region) == names.region)
        return next(here, None)

    def other_region(self, instance_id: str) -> str | None:
        names = config_bucket_names(instance_id)
        region = _region(_read_properties(names.plain) or {}, names.region)
        return None if region == names.region else region

    def has_stack(self, instance_id: str) -> bool:
        client, name = aws_client("cloudformation"), stack_name(instance_id)
        with translate_errors(f"stack {name}"):
            try:
                (stack,) = client.describe_stacks(StackName=name)["Stacks"]
            except ClientError as failure:
                if error_code(failure) != _MISSING_STACK:
                    raise
                return False
        return stack["StackStatus"] not in _EMPTY_STACKS

    def has_image(self, registry: Registry, repository: str, tag: str) -> bool:
        client = aws_client("ecr")
        with translate_errors(f"image {repository}:{tag}"):
            try:
                client.describe_images(
                    registryId=registry.account,
                    repositoryName=repository,
                    imageIds=[{"imageTag": tag}],
                )
            except (
                client.exceptions.ImageNotFoundException,
                client.exceptions.RepositoryNotFoundException,
            ):
                return False
        return True

    def find_key(self, arn: str) -> Key | None:
        client = aws_client("kms")
        with translate_errors(f"key {arn}"):
            try:
                found = client.describe_key(KeyId=arn)["KeyMetadata"]
            except client.exceptions.NotFoundException:
                return None
        return Key(found["KeyState"], found["KeySpec"], found["KeyUsage"], found["KeyManager"])

    def key_policy(self, arn: str) -> str:
        with translate_errors(f"the policy of key {arn}"):
            found = aws_client("kms").get_key_policy(KeyId=arn, PolicyName="default")
        return str(found["Policy"])


def _pages(client: Any, operation: str, member: str, **arguments: Any) -> list[dict[str, Any]]:
    pages = client.get_paginator(operation).paginate(**arguments)
    return [each for page in pages for each in page[member]]


def _routed(owners: dict[str, str], tables: Sequence[dict[str, Any]]) -> frozenset[str]:
    """Returns the subnets with a default route, by their own table or the main one."""
    own, main = {}, {}
    for table in tables:
        is_routed = any(
            route.get("DestinationCidrBlock") == _DEFAULT_ROUTE for route in table["Routes"]
        )
        for association in table["Associations"]:
            if association.get("Main"):
                main[table["VpcId"]] = is_routed
            elif "SubnetId" in association:
                own[association["SubnetId"]] = is_routed
    return frozenset(s for s, vpc in owners.items() if own.get(s, main.get(vpc, False)))


def _read_properties(bucket: str) -> Mapping[str, str] | None:
    """Returns the properties in a config bucket; None if there is none."""
    client = aws_client("s3")
    with translate_errors(f"the properties in bucket {bucket}"):
        try:
            found = client.get_object(Bucket=bucket, Key=INSTANCE_FILE)
        except (client.exceptions.NoSuchBucket, client.exceptions.NoSuchKey):
            return None
        return read_properties_text(found["Body"].read().decode())


def _region(properties: Mapping[str, str], default: str) -> str:
    return properties.get(REGION.name) or default
