# ruff: noqa: E501 (one declaration a line reads as a table)
"""Declarations of instance properties of gchq/sleeper.

Names and defaults are those of gchq/sleeper where it has them. Values under `sleeper.default.table.` are
declared with the table property that they are the default of.
"""

from typing import TypeVar

from sleeper.properties.declaration import INSTANCE_PROPERTIES, Group, Property, SetBy
from sleeper.properties.optional_stack import DEFAULT_STACKS, FORMER_NAMES, OptionalStack
from sleeper.properties.value_kind import (
    FLAG,
    STRING_LIST,
    TAGS,
    ValueKind,
    members,
    number_among,
    optional,
    pattern,
    text,
    whole_number,
)

T = TypeVar("T")

_INSTANCE_ID = pattern(
    r"[A-Za-z0-9]([A-Za-z0-9.-]{0,18}[A-Za-z0-9])?",
    "1 to 20 letters, digits, dots and hyphens, a letter or digit at both ends",
)

# CloudWatch accepts no others.
_RETENTION_DAYS = (-1, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827)
_RETENTION_YEARS = (2192, 2557, 2922, 3288, 3653)


def declare(
    name: str,
    kind: ValueKind[T],
    default: T | None,
    group: Group,
    description: str,
    *,
    set_by: SetBy = SetBy.USER,
    redeploy: bool = False,
    required: bool = False,
) -> Property[T]:
    """Declares an instance property. The name has no `sleeper.` prefix."""
    return INSTANCE_PROPERTIES.add(
        Property(
            name=f"sleeper.{name}",
            kind=kind,
            default=default,
            group=group,
            description=description,
            set_by=set_by,
            redeploy=redeploy,
            required=required,
        )
    )


# fmt: off
ID = declare("id", _INSTANCE_ID, None, Group.INSTANCE, "The instance's name, a part of the names of its AWS resources.", redeploy=True, required=True)
TAGS_OF_RESOURCES = declare("tags", TAGS, (), Group.INSTANCE, "Tags for every AWS resource of the instance.", redeploy=True)

VPC = declare("vpc", optional(text(100)), None, Group.DEPLOYMENT, "The id of the VPC that tasks run in.", redeploy=True)
SUBNETS = declare("subnets", STRING_LIST, (), Group.DEPLOYMENT, "The ids of the subnets that tasks run in.", redeploy=True)
ACCOUNT = declare("account", optional(pattern(r"\d{12}", "an AWS account number of 12 digits")), None, Group.DEPLOYMENT, "The AWS account.", set_by=SetBy.DEPLOYMENT, redeploy=True)
REGION = declare("region", optional(text(40)), None, Group.DEPLOYMENT, "The AWS region.", set_by=SetBy.DEPLOYMENT, redeploy=True)
OPTIONAL_STACKS = declare("optional.stacks", members(OptionalStack, FORMER_NAMES), DEFAULT_STACKS, Group.DEPLOYMENT, "The optional parts that are deployed. EmrStudioStack and KeepLambdaWarmStack deploy nothing.", redeploy=True)
RETAIN_INFRA = declare("retain.infra.after.destroy", FLAG, True, Group.DEPLOYMENT, "Whether buckets and tables are retained when the stack is deleted.", redeploy=True)
LOG_RETENTION_DAYS = declare("log.retention.days", number_among(*_RETENTION_DAYS, *_RETENTION_YEARS), 30, Group.DEPLOYMENT, "The retention of CloudWatch logs, in days. -1: unlimited.", redeploy=True)
ERRORS_EMAIL = declare("errors.email", optional(text(320)), None, Group.DEPLOYMENT, "The email address for alarms on dead letters.", redeploy=True)

INGEST_TASKS_MAX = declare("ingest.max.concurrent.tasks", whole_number(0), 200, Group.INGEST, "The maximum number of concurrent ingest tasks.")
INGEST_TASK_CPU = declare("ingest.task.cpu", whole_number(256, 16384), 2048, Group.INGEST, "CPU units of an ingest task.", redeploy=True)
INGEST_TASK_MEMORY_MB = declare("ingest.task.memory.mb", whole_number(512, 122880), 4096, Group.INGEST, "Memory of an ingest task, in MiB.", redeploy=True)
INGEST_VISIBILITY_SECONDS = declare("ingest.queue.visibility.timeout.seconds", whole_number(1, 43200), 900, Group.INGEST, "The visibility timeout of ingest jobs: without a renewal another task receives the job.", redeploy=True)
INGEST_KEEPALIVE_SECONDS = declare("ingest.keepalive.period.seconds", whole_number(1, 43200), 300, Group.INGEST, "The period in which an ingest task renews the visibility timeout of its job. Must be less than the timeout.")
INGEST_SOURCE_BUCKETS = declare("ingest.source.bucket", STRING_LIST, (), Group.INGEST, "Buckets that ingest may read files from.", redeploy=True)
INGEST_PARTITION_REFRESH_SECONDS = declare("ingest.partition.refresh.period", whole_number(0), 120, Group.INGEST, "The maximum age of an ingest task's copy of the partitions, in seconds.")

COMPACTION_TASKS_MAX = declare("compaction.max.concurrent.tasks", whole_number(0), 300, Group.COMPACTION, "The maximum number of concurrent compaction tasks.")
COMPACTION_CREATION_PERIOD_MINUTES = declare("compaction.job.creation.period.minutes", whole_number(1), 1, Group.COMPACTION, "The period in which compaction jobs are created.", redeploy=True)
COMPACTION_CPU_ARCHITECTURE = declare("compaction.task.cpu.architecture", pattern("ARM64|X86_64", "ARM64 or X86_64"), "ARM64", Group.COMPACTION, "The CPU architecture of compaction tasks.", redeploy=True)
COMPACTION_ARM_CPU = declare("compaction.task.arm.cpu", whole_number(256, 16384), 4096, Group.COMPACTION, "CPU units of a compaction task on ARM64.", redeploy=True)
COMPACTION_ARM_MEMORY_MB = declare("compaction.task.arm.memory.mb", whole_number(512, 122880), 8192, Group.COMPACTION, "Memory of a compaction task on ARM64, in MiB.", redeploy=True)
COMPACTION_X86_CPU = declare("compaction.task.x86.cpu", whole_number(256, 16384), 4096, Group.COMPACTION, "CPU units of a compaction task on X86_64.", redeploy=True)
COMPACTION_X86_MEMORY_MB = declare("compaction.task.x86.memory.mb", whole_number(512, 122880), 8192, Group.COMPACTION, "Memory of a compaction task on X86_64, in MiB.", redeploy=True)
COMPACTION_RETRIES_MAX = declare("compaction.job.max.retries", whole_number(1, 1000), 3, Group.COMPACTION, "The number of attempts before a compaction job becomes a dead letter.", redeploy=True)
COMPACTION_VISIBILITY_SECONDS = declare("compaction.queue.visibility.timeout.seconds", whole_number(1, 43200), 900, Group.COMPACTION, "The visibility timeout of compaction jobs: without a renewal another task receives the job.", redeploy=True)

COLLECTION_PERIOD_MINUTES = declare("gc.period.minutes", whole_number(1), 15, Group.COLLECTION, "The period of garbage collection.", redeploy=True)
COLLECTION_BATCH_SIZE = declare("gc.batch.size", whole_number(1), 10_000, Group.COLLECTION, "The maximum number of files that one log entry collects.")

SPLITTING_PERIOD_MINUTES = declare("partition.splitting.period.minutes", whole_number(1), 30, Group.SPLITTING, "The period of the search for partitions to split.", redeploy=True)
SPLITTING_FILES_MAX = declare("partition.splitting.files.maximum", whole_number(1), 50, Group.SPLITTING, "The maximum number of files whose sketches are read to find split points.")

QUERY_RESULTS_BATCH_SIZE = declare("query.results.batch.size", whole_number(1), 2000, Group.QUERY, "The maximum number of rows in a message of results.")
QUERY_TRACKER_DAYS = declare("query.tracker.ttl.days", whole_number(1), 1, Group.QUERY, "The retention of queries in the query tracker.")
QUERY_RESULTS_DAYS = declare("query.results.bucket.expiry.days", whole_number(1), 7, Group.QUERY, "The retention of query results.", redeploy=True)
# fmt: on
