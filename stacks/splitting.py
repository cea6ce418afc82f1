"""Partition splitting: one function finds leaves to split, another one splits them."""

import aws_cdk as cdk
from constructs import Construct

from sleeper.properties.deployment import SPLITTING_MEMORY_MB, SPLITTING_TIMEOUT_SECONDS
from sleeper.properties.instance import SPLITTING_PERIOD_MINUTES
from stacks.constructs.function import FunctionCode, Size
from stacks.constructs.per_table_operation import Operation, PerTableOperation
from stacks.constructs.permissions import DATA, read_objects, record_jobs, see_jobs, send
from stacks.constructs.receiver import Receiver, make_receiver
from stacks.constructs.state_permissions import commit, read_state
from stacks.deployment import Deployment

# Splits of one table conflict at its log, so more concurrency only causes more retries.
_AT_ONCE_MAX = 20


class SplittingStack(cdk.NestedStack):
    """Splitting reads data files without sufficient sketches, so it uses the image."""

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
            "Split",
            deployment,
            Receiver(
                queue="splitting",
                code=FunctionCode("split_partition", in_image=True),
                permissions=[
                    *read_state(deployment),
                    *commit(deployment),
                    record_jobs(deployment),
                    read_objects(deployment, DATA),
                ],
                size=Size(
                    memory_mb=deployment.get(SPLITTING_MEMORY_MB),
                    timeout_seconds=deployment.get(SPLITTING_TIMEOUT_SECONDS),
                ),
                at_once_max=_AT_ONCE_MAX,
                batch=1,
                on_demand=True,
            ),
        )
        PerTableOperation(
            self,
            "Find",
            deployment=deployment,
            operation=Operation(
                queue="find_partitions_to_split",
                handler="find_partitions_to_split",
                every_minutes=deployment.get(SPLITTING_PERIOD_MINUTES),
                permissions=[
                    record_jobs(deployment),
                    see_jobs(deployment),
                    send(deployment, "splitting"),
                ],
            ),
        )
