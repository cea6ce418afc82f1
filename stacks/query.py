"""Queries: their queue, their tracker, the bucket of results."""

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from constructs import Construct

from sleeper.aws.dynamo_tables import DynamoTable, Key
from sleeper.properties.deployed import QUERY_TRACKER_TABLE
from sleeper.properties.deployed_stores import QUERY_RESULTS, QUERY_TRACKER
from sleeper.properties.instance import QUERY_RESULTS_DAYS
from stacks.constructs.bucket import make_bucket
from stacks.constructs.dynamo_table import make_table
from stacks.constructs.job_queue import make_job_queue
from stacks.deployment import Deployment

_KEYED = DynamoTable(QUERY_TRACKER_TABLE, Key("queryId", "subQueryId"), expires=True)


class QueryStack(cdk.NestedStack):
    """What clients find by the instance's properties. Nothing takes the messages yet."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        alarms: sns.ITopic,
        emptier: lambda_.IFunction,
    ) -> None:
        super().__init__(scope, construct_id)
        make_job_queue(self, deployment, "query", alarms=alarms)
        make_table(self, "Tracker", deployment, QUERY_TRACKER, _KEYED)
        days = deployment.get(QUERY_RESULTS_DAYS)
        make_bucket(self, "Results", deployment, QUERY_RESULTS, emptier=emptier, expires_days=days)
