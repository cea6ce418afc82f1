"""IAM statements for reports and for the status of an instance."""

from sleeper.properties.instance import OptionalStack
from stacks.constructs.permissions import (
    Permission,
    count_all,
    list_dead_letters,
    list_tables,
    read_jobs,
    see_waiting_files,
)
from stacks.constructs.state_permissions import read_state, see_holds
from stacks.deployment import Deployment
from stacks.system_stack import chosen_stacks


def read_reports(deployment: Deployment) -> list[Permission]:
    """Allows what the reports on tables, jobs, queues and the chosen systems read."""
    allowed = [
        *read_state(deployment),
        list_tables(deployment),
        see_holds(deployment),
        *read_jobs(deployment),
        count_all(deployment),
        list_dead_letters(deployment),
    ]
    if deployment.has(OptionalStack.INGEST_BATCHER):
        allowed.append(see_waiting_files(deployment))
    for stack in chosen_stacks(deployment):
        allowed += stack.report(deployment)
    return allowed
