"""The queue of a platform, the function that submits its jobs, and the watcher."""

from collections.abc import Sequence

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from sleeper.jobs.spark_platform import PlatformName
from sleeper.properties.deployment import WATCH_PERIOD_MINUTES
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.permissions import Permission, find_tables, record_jobs, see_job
from stacks.constructs.receiver import Receiver, make_receiver
from stacks.constructs.schedule import start_every
from stacks.constructs.state_permissions import read_state
from stacks.deployment import Deployment
from stacks.systems.bulk_import.permissions import end_runs, keep_runs

# Enough for bursts, because jobs wait for the platform.
_AT_ONCE_MAX = 10


def start_jobs(
    scope: Construct,
    deployment: Deployment,
    platform: PlatformName,
    *,
    submit: Sequence[Permission],
    ask: Sequence[Permission],
) -> lambda_.Function:
    """Returns the function. `submit` allows starting a run, and `ask` reading its state."""
    stem = platform.value.replace("_", "-")
    told = {"SLEEPER_BULK_IMPORT_PLATFORM": platform.value}
    start = make_receiver(
        scope,
        "Start",
        deployment,
        Receiver(
            queue=f"bulk_import_{platform.value}",
            code=FunctionCode("start_bulk_import", environment=told),
            permissions=[
                *find_tables(deployment),
                record_jobs(deployment),
                see_job(deployment),
                *keep_runs(deployment, platform),
                *submit,
            ],
            name=f"start-bulk-import-{stem}",
            size=Size(keeps_state=False),
            at_once_max=_AT_ONCE_MAX,
        ),
    )
    watch = make_function(
        scope,
        "Watch",
        deployment,
        FunctionCode("watch_bulk_imports", environment=told),
        permissions=[
            *read_state(deployment),
            record_jobs(deployment),
            see_job(deployment),
            *end_runs(deployment, platform),
            *ask,
        ],
        name=f"watch-bulk-imports-{stem}",
    )
    start_every(watch, deployment, deployment.get(WATCH_PERIOD_MINUTES), f"watch-{stem}")
    return start
