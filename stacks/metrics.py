"""Metrics of tables: files, references, rows, partitions."""

import aws_cdk as cdk
from constructs import Construct

from sleeper.properties.deployment import METRICS_PERIOD_MINUTES
from stacks.constructs.per_table_operation import Operation, PerTableOperation
from stacks.deployment import Deployment


class TableMetricsStack(cdk.NestedStack):
    """Metrics are logged in CloudWatch's embedded format, which needs no request."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
    ) -> None:
        super().__init__(scope, construct_id)
        PerTableOperation(
            self,
            "Metrics",
            deployment=deployment,
            operation=Operation(
                queue="table_metrics",
                handler="report_table_metrics",
                every_minutes=deployment.get(METRICS_PERIOD_MINUTES),
                permissions=[],
            ),
        )
