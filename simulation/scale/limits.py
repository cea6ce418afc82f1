"""Limits of AWS, of us-east-1 in November 2026.

Sources: the pages *quotas* and *throttling* of Lambda, SQS, DynamoDB and ECS on
docs.aws.amazon.com. Quotas of an account can be raised, that of a partition key cannot.
"""

from dataclasses import dataclass

PARTITION_WRITE_UNITS = 1_000
"""Write units a second of one partition key of DynamoDB; a write in a transaction takes two."""

TABLE_WRITE_UNITS = 40_000
"""Write units a second of one on-demand table. A new table begins with 4,000."""

IN_FLIGHT_STANDARD = 120_000
IN_FLIGHT_FIFO = 20_000
"""Received messages that are not deleted yet. AWS has raised that of FIFO queues to 120,000."""

LAMBDA_UNRESERVED_MIN = 100
"""Concurrency of an account that functions cannot reserve."""

RUN_TASK_COUNT_MAX = 10
"""Tasks of one request to ECS."""


@dataclass(frozen=True, slots=True)
class Account:
    """The quotas of an account in a region.

    `fargate_launches` is the bucket of task launches, which refills at `fargate_launches_second`.
    """

    lambda_concurrency: int = 1_000
    fargate_cpus: int = 4_000
    fargate_launches: int = 100
    fargate_launches_second: float = 20.0


ESTABLISHED = Account()
"""An account whose Fargate quota was raised, so that all tasks of the defaults can run.

New accounts have a concurrency of 10 or 50, and 6 processors of Fargate.
"""
