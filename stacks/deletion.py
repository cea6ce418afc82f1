"""Deletes by message: their queue, and the function that commits them."""

import aws_cdk as cdk
from constructs import Construct

from stacks.constructs.function import FunctionCode
from stacks.constructs.permissions import COMMITS, record_jobs, send, write_objects
from stacks.constructs.receiver import Receiver, make_receiver
from stacks.constructs.state_permissions import read_state
from stacks.deployment import Deployment

# The committer commits the deletes of one table in turn.
_AT_ONCE_MAX = 20


class DeletionStack(cdk.NestedStack):
    """A delete is an entry of the log, so the function reads and writes no data files.

    The committer writes the entry.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
    ) -> None:
        super().__init__(scope, construct_id)
        make_receiver(
            self,
            "Delete",
            deployment,
            Receiver(
                queue="deletion",
                code=FunctionCode("delete_rows"),
                permissions=[
                    *read_state(deployment),
                    write_objects(deployment, COMMITS),
                    send(deployment, "commits"),
                    record_jobs(deployment),
                ],
                at_once_max=_AT_ONCE_MAX,
            ),
        )
