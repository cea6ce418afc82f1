"""A DynamoDB table of the instance."""

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from sleeper.properties.deployed import TIME_TO_LIVE, DeployedTable, Key
from stacks.constructs.acknowledged import acknowledge
from stacks.constructs.key import find_key
from stacks.deployment import INSTANCE_TAG, Deployment

_TYPES = {"S": dynamodb.AttributeType.STRING, "N": dynamodb.AttributeType.NUMBER}


def make_table(
    scope: Construct,
    construct_id: str,
    deployment: Deployment,
    table: DeployedTable,
    has_stream: bool = False,
) -> dynamodb.Table:
    """Returns a table that is billed per request, with the keys of its declaration.

    The events of its stream have the keys of changed items.
    """
    key = find_key(scope, construct_id, deployment)
    encryption = dynamodb.TableEncryption
    made = dynamodb.Table(
        scope,
        construct_id,
        table_name=deployment.table_name(table),
        partition_key=_hash(table.key),
        sort_key=_range(table.key),
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        encryption=encryption.CUSTOMER_MANAGED if key else encryption.DEFAULT,
        encryption_key=key,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=table.lasting
        ),
        stream=dynamodb.StreamViewType.KEYS_ONLY if has_stream else None,
        time_to_live_attribute=TIME_TO_LIVE if table.expires else None,
        removal_policy=(deployment.removal_policy if table.lasting else cdk.RemovalPolicy.DESTROY),
    )
    if table.index is not None:
        made.add_global_secondary_index(
            index_name=table.index.name,
            partition_key=_hash(table.index.key),
            sort_key=_range(table.index.key),
            projection_type=(
                dynamodb.ProjectionType.ALL
                if table.index.holds_all
                else dynamodb.ProjectionType.KEYS_ONLY
            ),
        )
    if table.lasting:
        cdk.Tags.of(made).add(INSTANCE_TAG, deployment.id)
        deployment.lasting_tables.append(table)
    else:
        acknowledge(made, "DDB3", "its items expire, or can be rebuilt from the log")
    deployment.record(table.place, deployment.table_name(table))
    return made


def _hash(key: Key) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=key.hash, type=dynamodb.AttributeType.STRING)


def _range(key: Key) -> dynamodb.Attribute | None:
    if key.range is None:
        return None
    return dynamodb.Attribute(name=key.range, type=_TYPES[key.range_type])
