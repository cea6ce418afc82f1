"""Iceberg: the function that publishes tables after commits."""

from collections.abc import Sequence

import aws_cdk as cdk

from sleeper.iceberg.metrics import KIND, SCHEDULE_MINUTES, IcebergMetric
from sleeper.iceberg.properties import ICEBERG_MEMORY_MB
from stacks.constructs.alarm import Alarm, add_alarm
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.log_stream import read_log_stream, start_after_commits
from stacks.constructs.metric import Chart, chart_metric, kind_metric
from stacks.constructs.permissions import (
    DATA,
    Permission,
    delete_objects,
    list_tables,
    read_objects,
    write_objects,
)
from stacks.constructs.schedule import start_every
from stacks.constructs.state_permissions import hold, read_state
from stacks.context import StackContext
from stacks.deployment import Deployment
from stacks.system_stack import SystemStack

_FOLDER = "iceberg"
_PUBLISH = "publish_tables"
_TIMEOUT_SECONDS = 900
# Commits in quick succession are one publication.
_WAIT_SECONDS = 5


class IcebergStack(SystemStack):
    """The stream of the log table starts the function, and a schedule.

    It publishes to the folders of tables in the bucket of the instance.
    """

    follows_logs = True
    table_folders = (_FOLDER,)

    @classmethod
    def administer(cls, deployment: Deployment) -> Sequence[Permission]:
        return _publish(deployment)

    @classmethod
    def report(cls, deployment: Deployment) -> Sequence[Permission]:
        """The status and the catalog of the HTTP API read what was published."""
        return [read_objects(deployment, _FOLDER)]

    @classmethod
    def make_charts(cls, deployment: Deployment) -> Sequence[Chart]:
        late = chart_metric(deployment, KIND, IcebergMetric.LATE, "Maximum")
        return [("Tables published too late", [late])]

    def create(self, context: StackContext) -> None:
        deployment = context.deployment
        publish = make_function(
            self,
            "Publish",
            deployment,
            FunctionCode(_PUBLISH, in_image=True),
            permissions=[
                *read_state(deployment),
                *hold(deployment),
                list_tables(deployment),
                read_objects(deployment, DATA),
                *_publish(deployment),
                *read_log_stream(deployment),
            ],
            size=Size(deployment.get(ICEBERG_MEMORY_MB), _TIMEOUT_SECONDS),
        )
        assert context.log_stream is not None
        start_after_commits(publish, context.log_stream, _WAIT_SECONDS)
        start_every(publish, deployment, SCHEDULE_MINUTES, _PUBLISH.replace("_", "-"))
        period = cdk.Duration.minutes(SCHEDULE_MINUTES)
        late = Alarm(
            "publications-late",
            "a table was not published in time for readers of Iceberg",
            kind_metric(deployment, KIND, IcebergMetric.LATE, "Maximum", period),
            periods=2,
        )
        add_alarm(self, "Late", deployment, context.alarms, late)


def _publish(deployment: Deployment) -> list[Permission]:
    """Allows publishing tables to their folders, and deleting what no version needs."""
    return [
        read_objects(deployment, _FOLDER),
        write_objects(deployment, _FOLDER),
        delete_objects(deployment, _FOLDER),
    ]
