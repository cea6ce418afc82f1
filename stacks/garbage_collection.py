"""Garbage collection of unreferenced files, orphans and deleted tables."""

import aws_cdk as cdk
from constructs import Construct

from sleeper.properties.instance import COLLECTION_PERIOD_MINUTES, ORPHAN_PERIOD_HOURS
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.per_table_operation import Operation, PerTableOperation
from stacks.constructs.permissions import (
    BIRTHMARK,
    COMMITS,
    DATA,
    LOG_BODIES,
    STATE,
    delete_objects,
    list_tables,
    remove_deleted_tables,
)
from stacks.constructs.schedule import start_every
from stacks.constructs.state_permissions import commit, forget_holds, read_state, trim_logs
from stacks.deployment import Deployment
from stacks.system_stack import all_stacks

_EVERYTHING = (DATA, STATE, LOG_BODIES, COMMITS)
_HOUR_MINUTES = 60
_LONGEST_SECONDS = 900


class GarbageCollectionStack(cdk.NestedStack):
    """Only this stack's functions can delete data files."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
    ) -> None:
        super().__init__(scope, construct_id)
        for construct, operation in {
            "Files": Operation(
                queue="garbage_collection",
                handler="collect_garbage",
                every_minutes=deployment.get(COLLECTION_PERIOD_MINUTES),
                permissions=[
                    *commit(deployment),
                    *forget_holds(deployment),
                    delete_objects(deployment, DATA),
                ],
            ),
            "Orphans": Operation(
                queue="orphan_collection",
                handler="collect_orphans",
                every_minutes=_HOUR_MINUTES * deployment.get(ORPHAN_PERIOD_HOURS),
                permissions=[*commit(deployment), delete_objects(deployment, *_EVERYTHING)],
                size=Size(timeout_seconds=_LONGEST_SECONDS),
            ),
        }.items():
            PerTableOperation(self, construct, deployment=deployment, operation=operation)
        sweep = make_function(
            self,
            "Sweep",
            deployment,
            FunctionCode("sweep_instance"),
            permissions=[
                *read_state(deployment),
                *commit(deployment),
                *trim_logs(deployment),
                list_tables(deployment),
                *remove_deleted_tables(deployment),
                delete_objects(deployment, *_EVERYTHING, *_folders_of_systems(), BIRTHMARK),
            ],
            size=Size(timeout_seconds=_LONGEST_SECONDS),
        )
        start_every(sweep, deployment, _HOUR_MINUTES, "sweep-instance")


def _folders_of_systems() -> list[str]:
    """Returns those of all systems, because tables may have them from earlier deployments."""
    return sorted({folder for stack in all_stacks() for folder in stack.table_folders})
