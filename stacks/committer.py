"""The committer: a FIFO queue of commits, and the function that applies them."""

import aws_cdk as cdk
from constructs import Construct

from sleeper.properties.deployment import (
    COMMITTER_CONCURRENCY_RESERVED,
    COMMITTER_MEMORY_MB,
    COMMITTER_TIMEOUT_SECONDS,
)
from sleeper.properties.instance import QUEUE_RECEIVES_MAX
from stacks.constructs.concurrency import check_reserved
from stacks.constructs.function import FunctionCode, Size
from stacks.constructs.permissions import (
    COMMITS,
    delete_objects,
    find_many_tables,
    read_objects,
    record_jobs,
)
from stacks.constructs.receiver import Receiver, make_receiver
from stacks.constructs.state_permissions import commit, read_state
from stacks.deployment import Deployment

# A message holds the work of a run. With the committer's delays, it becomes a dead letter after an
# hour.
_RECEIVES_MIN = 20


class CommitterStack(cdk.NestedStack):
    """The queue has one group per table, so that one function at a time commits to a table."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
    ) -> None:
        super().__init__(scope, construct_id)
        reserved = deployment.get(COMMITTER_CONCURRENCY_RESERVED)
        check_reserved(deployment, reserved)
        make_receiver(
            self,
            "Commit",
            deployment,
            Receiver(
                queue="commits",
                code=FunctionCode("commit_transactions"),
                permissions=[
                    *read_state(deployment),
                    *commit(deployment),
                    find_many_tables(deployment),
                    record_jobs(deployment),
                    read_objects(deployment, COMMITS),
                    delete_objects(deployment, COMMITS),
                ],
                size=Size(
                    memory_mb=deployment.get(COMMITTER_MEMORY_MB),
                    timeout_seconds=deployment.get(COMMITTER_TIMEOUT_SECONDS),
                    concurrency_reserved=reserved or None,
                ),
                receives_max=max(_RECEIVES_MIN, deployment.get(QUEUE_RECEIVES_MAX)),
            ),
        )
