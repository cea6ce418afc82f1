"""The emulator binds roles to attributes of items, as AWS does, and records what they do."""

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.servers.ministack import REGION, Ministack, ministack
from tests.system.roles import credentials_of

TABLE = "sleeper-mine-transaction-log"
KEY = {"tableId": {"S": "t"}, "item": {"S": "cursor#a"}}
ATTRIBUTES = ["tableId", "item", "position"]
STATEMENT = {
    "Effect": "Allow",
    "Action": ["dynamodb:UpdateItem", "dynamodb:BatchWriteItem"],
    "Resource": "*",
    "Condition": {"ForAllValues:StringEquals": {"dynamodb:Attributes": ATTRIBUTES}},
}


def make_role(server: Ministack) -> Any:
    """Returns a client of DynamoDB whose role has the statement."""
    iam = server.client("iam")
    policy = json.dumps({"Version": "2012-10-17", "Statement": [STATEMENT]})
    trust = json.dumps({"Version": "2012-10-17", "Statement": []})
    role = iam.create_role(RoleName="follower", AssumeRolePolicyDocument=trust)["Role"]
    iam.put_role_policy(RoleName="follower", PolicyName="p", PolicyDocument=policy)
    credentials = credentials_of(server.client, role["Arn"])
    return boto3.client(
        "dynamodb",
        endpoint_url=server.url,
        region_name=REGION,
        **{name.lower(): value for name, value in credentials.items()},
    )


def make_table(server: Ministack) -> None:
    keys = {"tableId": "HASH", "item": "RANGE"}
    server.client("dynamodb").create_table(
        TableName=TABLE,
        KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in keys],
        BillingMode="PAY_PER_REQUEST",
    )


def test_other_attributes_are_refused_and_all_calls_recorded(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    with ministack(tmp_path, checks_policies=True, recorded_calls=file) as server:
        make_table(server)
        dynamo = make_role(server)

        def update(attribute: str) -> None:
            dynamo.update_item(
                TableName=TABLE,
                Key=KEY,
                UpdateExpression="SET #a = :a",
                ExpressionAttributeNames={"#a": attribute},
                ExpressionAttributeValues={":a": {"N": "1"}},
            )

        def write(request: dict[str, Any]) -> None:
            dynamo.batch_write_item(RequestItems={TABLE: [request]})

        update("position")
        write({"DeleteRequest": {"Key": KEY}})
        with pytest.raises(ClientError, match="not authorized"):
            update("head")
        with pytest.raises(ClientError, match="not authorized"):
            write({"PutRequest": {"Item": {**KEY, "body": {"S": "x"}}}})
    facts = [json.loads(line) for line in file.read_text().splitlines()]
    table = f"arn:aws:dynamodb:{REGION}:000000000000:table/{TABLE}"
    for action in STATEMENT["Action"]:
        for kind, resource in (("granted", "*"), ("used", "*"), ("refused", table)):
            assert {"role": "follower", kind: [action, resource]} in facts


def test_what_a_role_is_refused_after_its_policy_was_deleted_is_not_recorded(
    tmp_path: Path,
) -> None:
    file = tmp_path / "calls.jsonl"
    with ministack(tmp_path, checks_policies=True, recorded_calls=file) as server:
        make_table(server)
        dynamo = make_role(server)
        server.client("iam").delete_role_policy(RoleName="follower", PolicyName="p")
        with pytest.raises(ClientError, match="not authorized"):
            dynamo.delete_item(TableName=TABLE, Key=KEY)
    assert not file.exists() or "refused" not in file.read_text()
