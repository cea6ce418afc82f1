"""The transaction logs, the holds, the trackers, and the snapshots of tables' states."""

import aws_cdk as cdk
from constructs import Construct

from sleeper.properties.deployed import HOLDS, JOB_TRACKER, TASK_TRACKER, TRANSACTION_LOG
from sleeper.properties.instance import SNAPSHOT_PERIOD_MINUTES
from stacks.constructs.dynamo_table import make_table
from stacks.constructs.per_table_operation import Operation, PerTableOperation
from stacks.constructs.permissions import STATE, delete_objects, write_objects
from stacks.constructs.state_permissions import see_holds, trim_logs
from stacks.deployment import Deployment
from stacks.system_stack import chosen_stacks


class StateStoreStack(cdk.NestedStack):
    """One DynamoDB table holds all logs; a schedule takes snapshots and trims logs.

    `log_stream` is the ARN of the stream of logs, if the stack of a system follows them.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
    ) -> None:
        super().__init__(scope, construct_id)
        followed = any(stack.follows_logs for stack in chosen_stacks(deployment))
        log = make_table(self, "Log", deployment, TRANSACTION_LOG, has_stream=followed)
        self.log_stream = log.table_stream_arn
        make_table(self, "Holds", deployment, HOLDS)
        make_table(self, "JobTracker", deployment, JOB_TRACKER)
        make_table(self, "TaskTracker", deployment, TASK_TRACKER)
        PerTableOperation(
            self,
            "Snapshots",
            deployment=deployment,
            operation=Operation(
                queue="state_snapshots",
                handler="take_state_snapshots",
                every_minutes=deployment.get(SNAPSHOT_PERIOD_MINUTES),
                permissions=[
                    see_holds(deployment),
                    *trim_logs(deployment),
                    write_objects(deployment, STATE),
                    delete_objects(deployment, STATE),
                ],
            ),
        )
