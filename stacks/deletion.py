"""Deletes by message: their queue, and the function that commits them."""

import aws_cdk as cdk
from aws_cdk import aws_sns as sns
from constructs import Construct

from sleeper.properties.deployment import LAMBDA_TIMEOUT_SECONDS
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.job_queue import feed, make_job_queue, visibility_for
from stacks.constructs.permissions import commit, read_state, receive, track
from stacks.deployment import Deployment

# Deletes of one table conflict at its log, so more concurrency only causes more retries.
_AT_ONCE_MAX = 20


class DeletionStack(cdk.NestedStack):
    """A delete is an entry of the log, so the function reads and writes no data files."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        alarms: sns.ITopic,
    ) -> None:
        super().__init__(scope, construct_id)
        timeout = deployment.get(LAMBDA_TIMEOUT_SECONDS)
        deletes = make_job_queue(
            self, deployment, "deletion", alarms=alarms, visibility_seconds=visibility_for(timeout)
        )
        function = make_function(
            self,
            "Delete",
            deployment,
            FunctionCode("delete_rows"),
            permissions=[
                *read_state(deployment),
                *commit(deployment),
                *track(deployment),
                receive(deployment, deletes.declared),
            ],
            size=Size(timeout_seconds=timeout),
        )
        feed(function, deletes, at_once_max=_AT_ONCE_MAX)
