"""An instance with a KMS key: what the key encrypts, and who may use it for what."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.infra.roles import ACCOUNT, PREFIX, REGION, Role, literal, read_roles
from tests.infra.synthesis import FORMER_KEY, KEY, ROOT, Resource, Synthesis, as_list
from tests.policies import Call, Statement, allows

ENCRYPTED = {
    "AWS::DynamoDB::Table": {"SSESpecification"},
    "AWS::ECS::Cluster": {"Configuration"},
    "AWS::Logs::LogGroup": {"KmsKeyId"},
    "AWS::S3::Bucket": {"BucketEncryption"},
    "AWS::SNS::Topic": {"KmsMasterKeyId"},
    "AWS::SQS::Queue": {"KmsMasterKeyId", "SqsManagedSseEnabled"},
}
"""The types that name the key, with the properties that do so."""
ELSEWHERE = {
    "AWS::CloudFormation::Stack": {"TemplateURL"},
    "AWS::IAM::ManagedPolicy": {"PolicyDocument"},
    "AWS::IAM::Policy": {"PolicyDocument"},
    "Custom::SleeperProperties": {"Set"},
}
"""Other types that change with a key, with the properties that do so."""

READS = {
    "dynamodb:BatchGetItem",
    "dynamodb:GetItem",
    "dynamodb:GetRecords",
    "dynamodb:Query",
    "dynamodb:Scan",
    "s3:GetObject",
    "sqs:ReceiveMessage",
}
WRITES = {
    "dynamodb:BatchWriteItem",
    "dynamodb:DeleteItem",
    "dynamodb:PutItem",
    "dynamodb:UpdateItem",
    "s3:PutObject",
    "sqs:SendMessage",
}
WITHOUT_CONTENT = {
    "dynamodb:DescribeStream",
    "dynamodb:DescribeTable",
    "dynamodb:GetShardIterator",
    "dynamodb:ListStreams",
    "dynamodb:UpdateTable",
    "s3:AbortMultipartUpload",
    "s3:DeleteObject",
    "s3:DeleteObjectVersion",
    "s3:ListBucket",
    "s3:ListBucketVersions",
    "sqs:ChangeMessageVisibility",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
}
SERVICES = {"dynamodb", "s3", "sqs"}


@pytest.fixture(scope="module")
def roles(encrypted: Synthesis) -> dict[str, Role]:
    return read_roles(encrypted)


@pytest.mark.parametrize("kind", ENCRYPTED)
def test_every_resource_with_content_names_the_key(encrypted: Synthesis, kind: str) -> None:
    resources = encrypted.properties(kind)
    assert resources
    # A cluster names the key by its id.
    end_of_arn = f'{KEY.rpartition("/")[2]}"'
    for properties in resources:
        assert end_of_arn in json.dumps({name: properties.get(name) for name in ENCRYPTED[kind]})


def test_a_bucket_asks_for_a_key_of_its_own(encrypted: Synthesis) -> None:
    """Otherwise S3 asks KMS for each object."""
    for properties in encrypted.properties("AWS::S3::Bucket"):
        (rule,) = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert rule["BucketKeyEnabled"] is True


def test_a_key_changes_nothing_but_encryption(all_parts: Synthesis, encrypted: Synthesis) -> None:
    before, after = _resources(all_parts), _resources(encrypted)
    assert set(before) == set(after)
    for path, resource in before.items():
        old, new = resource.get("Properties", {}), after[path].get("Properties", {})
        changed = {name for name in {**old, **new} if old.get(name) != new.get(name)}
        assert changed <= {**ENCRYPTED, **ELSEWHERE}.get(resource["Type"], set()), path
        rest = {key: value for key, value in resource.items() if key != "Properties"}
        assert rest == {k: v for k, v in after[path].items() if k != "Properties"}


def test_without_a_key_nothing_names_kms(all_parts: Synthesis) -> None:
    text = json.dumps(all_parts.templates).lower()
    assert "kms:" not in text
    assert "kmsmasterkeyid" not in text


def test_every_action_is_known_to_need_the_key_or_not(roles: dict[str, Role]) -> None:
    actions = {action for role in roles.values() for action in _actions(role)}
    assert {a for a in actions if a.split(":")[0] in SERVICES} == READS | WRITES | WITHOUT_CONTENT


def test_a_role_may_use_the_key_for_what_it_reads_and_writes(roles: dict[str, Role]) -> None:
    for name, role in roles.items():
        actions = _actions(role)
        for service in SERVICES:
            reads, writes = (
                any(action.startswith(f"{service}:") for action in actions & among)
                for among in (READS, WRITES)
            )
            assert role.may(_use("Decrypt", service)) is (reads or writes), name
            assert role.may(_use("GenerateDataKey", service)) is writes, name
            assert role.may(_use("Decrypt", service, FORMER_KEY)) is (reads or writes), name
    assert any(role.may(_use("GenerateDataKey", "sqs")) for role in roles.values())


def test_a_key_is_used_only_through_services(roles: dict[str, Role]) -> None:
    refused = [
        Call("kms:Decrypt", KEY),
        _use("Decrypt", "secretsmanager"),
        _use("Decrypt", "s3", KEY.replace("k-1", "k-2")),
        _use("GenerateDataKey", "s3", FORMER_KEY),
        *(_use(action, "s3") for action in ("CreateGrant", "Encrypt", "PutKeyPolicy")),
    ]
    assert [
        (name, call) for name, role in roles.items() for call in refused if role.may(call)
    ] == []


class TestTheKeyPolicyOfTheSecurityPage:
    """The statements for services that use the key in their own name."""

    def test_logs(self, encrypted: Synthesis) -> None:
        groups = [literal(p["LogGroupName"]) for p in encrypted.properties("AWS::Logs::LogGroup")]
        logs = f"logs.{REGION}.amazonaws.com"
        for group in groups:
            for action in ("Encrypt", "Decrypt", "ReEncryptTo", "GenerateDataKey", "DescribeKey"):
                assert _may(logs, action, **{"aws:logs:arn": _log_arn(group)}), group
        other = groups[0].replace(PREFIX, "sleeper-examples-")
        assert other != groups[0]
        assert not _may(logs, "Decrypt", **{"aws:logs:arn": _log_arn(other)})
        assert not _may("logs.us-east-1.amazonaws.com", "Decrypt")

    def test_alarms(self, encrypted: Synthesis) -> None:
        (topic,) = encrypted.properties("AWS::SNS::Topic")
        arn = f"arn:aws:sns:{REGION}:{ACCOUNT}:{literal(topic['TopicName'])}"
        for action in ("Decrypt", "GenerateDataKey"):
            assert _may("cloudwatch.amazonaws.com", action, **{"aws:sns:topicArn": arn})
            other = {"aws:sns:topicArn": f"{arn}-of-others"}
            assert not _may("cloudwatch.amazonaws.com", action, **other)

    def test_disks_of_tasks(self, encrypted: Synthesis) -> None:
        (cluster,) = encrypted.properties("AWS::ECS::Cluster")
        context = {
            "aws:ecs:clusterAccount": ACCOUNT,
            "aws:ecs:clusterName": literal(cluster["ClusterName"]),
        }
        for action in ("GenerateDataKeyWithoutPlaintext", "CreateGrant"):
            assert _may("fargate.amazonaws.com", action, **context)
            others = {**context, "aws:ecs:clusterName": "others"}
            assert not _may("fargate.amazonaws.com", action, **others)

    def test_roles_of_the_account(self) -> None:
        assert _may(f"arn:aws:iam::{ACCOUNT}:root", "Decrypt")
        assert not _may("arn:aws:iam::210987654321:root", "Decrypt")


def _resources(synthesis: Synthesis) -> dict[str, Resource]:
    return {
        f"{concern}/{logical_id}": resource
        for concern, template in synthesis.templates.items()
        for logical_id, resource in template["Resources"].items()
    }


def _actions(role: Role) -> set[str]:
    return {
        action
        for statements in role.policies
        for each in statements
        if each.effect == "Allow"
        for action in each.actions
    }


def _use(action: str, service: str, key: str = KEY) -> Call:
    return Call(f"kms:{action}", key, {"kms:viaservice": [f"{service}.{REGION}.amazonaws.com"]})


def _log_arn(group: str) -> str:
    return f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{group}"


def _may(principal: str, action: str, **context: str) -> bool:
    keys = {f"kms:encryptioncontext:{name.lower()}": [value] for name, value in context.items()}
    keys |= {"kms:grantoperations": ["Decrypt"], "aws:sourceaccount": [ACCOUNT]}
    statements = [each for who, each in _key_policy() if who == principal]
    return allows(statements, Call(f"kms:{action}", KEY, keys))


def _key_policy() -> Iterator[tuple[str, Statement]]:
    """Yields the statements, each with a principal."""
    text = (ROOT / "docs" / "security.md").read_text()
    section = text[text.index("### A key of your own") :]
    found = re.search(r"```json\n(.*?)```", section, re.DOTALL)
    assert found is not None
    policy = found[1]
    values = {"ACCOUNT": ACCOUNT, "REGION": REGION, "INSTANCE": PREFIX.split("-")[1]}
    for name, value in values.items():
        policy = policy.replace(name, value)
    for each in json.loads(policy)["Statement"]:
        principals: list[Any] = [p for group in each["Principal"].values() for p in as_list(group)]
        conditions = {
            operator: {key: as_list(values) for key, values in wanted.items()}
            for operator, wanted in each.get("Condition", {}).items()
        }
        for principal in principals:
            resources = as_list(each["Resource"])
            yield principal, Statement("Allow", as_list(each["Action"]), resources, conditions)
