"""The DynamoDB tables of the table index."""

import aws_cdk as cdk
from constructs import Construct

from sleeper.properties.deployed import (
    TABLE_INDEX_BY_ID,
    TABLE_INDEX_BY_NAME,
    TABLE_INDEX_BY_ONLINE,
)
from stacks.constructs.dynamo_table import make_table
from stacks.deployment import Deployment


class TableIndexStack(cdk.NestedStack):
    """Three DynamoDB tables with the same items, which change together."""

    def __init__(self, scope: Construct, construct_id: str, *, deployment: Deployment) -> None:
        super().__init__(scope, construct_id)
        make_table(self, "ByName", deployment, TABLE_INDEX_BY_NAME)
        make_table(self, "ById", deployment, TABLE_INDEX_BY_ID)
        make_table(self, "ByOnline", deployment, TABLE_INDEX_BY_ONLINE)
