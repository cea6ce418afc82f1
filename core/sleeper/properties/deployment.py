# ruff: noqa: E501 (one declaration a line reads as a table)
"""Declarations of instance properties that size the resources of a deployment to AWS.

Names are those of gchq/sleeper where it has one for the same thing.
"""

from sleeper.properties.declaration import Group
from sleeper.properties.instance import declare
from sleeper.properties.value_kind import FLAG, pattern, whole_number

_ARCHITECTURE = pattern("ARM64|X86_64", "ARM64 or X86_64")
_MEMORY_MB = whole_number(128, 10_240)
_TIMEOUT_SECONDS = whole_number(1, 900)

# fmt: off
LAMBDA_CPU_ARCHITECTURE = declare("lambda.cpu.architecture", _ARCHITECTURE, "ARM64", Group.DEPLOYMENT, "The CPU architecture of lambdas.", redeploy=True)
LAMBDA_MEMORY_MB = declare("lambda.memory.mb", _MEMORY_MB, 1024, Group.DEPLOYMENT, "Memory of lambdas without their own property, in MiB. CPU scales with memory.", redeploy=True)
LAMBDA_TIMEOUT_SECONDS = declare("lambda.timeout.seconds", _TIMEOUT_SECONDS, 300, Group.DEPLOYMENT, "The timeout of lambdas without their own property.", redeploy=True)
LAMBDA_DISK_MB = declare("lambda.ephemeral.storage.mb", whole_number(512, 10_240), 2048, Group.DEPLOYMENT, "The disk of a lambda that keeps copies of tables' states, in MiB.", redeploy=True)
TASK_DISK_GIB = declare("task.ephemeral.storage.gib", whole_number(21, 200), 50, Group.DEPLOYMENT, "The local disk of a task for spilling sorts and merges, in GiB.", redeploy=True)
TRACING = declare("tracing", FLAG, True, Group.DEPLOYMENT, "Whether X-Ray traces lambdas.", redeploy=True)

COMMITTER_MEMORY_MB = declare("statestore.committer.lambda.memory.mb", _MEMORY_MB, 1769, Group.STATE, "Memory of the lambda that commits transactions, in MiB. 1769 MiB provide one vCPU.", redeploy=True)
COMMITTER_TIMEOUT_SECONDS = declare("statestore.committer.lambda.timeout.seconds", _TIMEOUT_SECONDS, 60, Group.STATE, "The timeout of the lambda that commits transactions.", redeploy=True)
COMMITTER_CONCURRENCY_RESERVED = declare("statestore.committer.concurrency.reserved", whole_number(0, 10_000), 10, Group.STATE, "The reserved concurrency of the lambda that commits transactions, which is also its limit. 0: no reservation, for accounts with a small quota.", redeploy=True)

INGEST_CPU_ARCHITECTURE = declare("ingest.task.cpu.architecture", _ARCHITECTURE, "ARM64", Group.INGEST, "The CPU architecture of ingest tasks.", redeploy=True)
INGEST_TASK_PERIOD_MINUTES = declare("ingest.task.creation.period.minutes", whole_number(1), 1, Group.INGEST, "The period in which ingest tasks are started if jobs are queued.", redeploy=True)
BATCHER_PERIOD_MINUTES = declare("ingest.batcher.job.creation.period.minutes", whole_number(1), 1, Group.INGEST_BATCHER, "The period in which the ingest batcher creates jobs.", redeploy=True)

COMPACTION_TASK_PERIOD_MINUTES = declare("compaction.task.creation.period.minutes", whole_number(1), 1, Group.COMPACTION, "The period in which compaction tasks are started if jobs are queued.", redeploy=True)
COMPACTION_CREATION_MEMORY_MB = declare("compaction.job.creation.memory.mb", _MEMORY_MB, 2048, Group.COMPACTION, "Memory of the lambda that creates compaction jobs, in MiB.", redeploy=True)
COMPACTION_CREATION_TIMEOUT_SECONDS = declare("compaction.job.creation.timeout.seconds", _TIMEOUT_SECONDS, 300, Group.COMPACTION, "The timeout of the lambda that creates compaction jobs.", redeploy=True)

SPLITTING_MEMORY_MB = declare("partition.splitting.memory.mb", _MEMORY_MB, 2048, Group.SPLITTING, "Memory of the lambda that splits a partition, in MiB.", redeploy=True)
SPLITTING_TIMEOUT_SECONDS = declare("partition.splitting.timeout.seconds", _TIMEOUT_SECONDS, 900, Group.SPLITTING, "The timeout of the lambda that splits a partition.", redeploy=True)

QUERY_MEMORY_MB = declare("query.processor.memory.mb", _MEMORY_MB, 3008, Group.QUERY, "Memory of the lambdas that plan and run queries, in MiB.", redeploy=True)
QUERY_TIMEOUT_SECONDS = declare("query.processor.timeout.seconds", _TIMEOUT_SECONDS, 900, Group.QUERY, "The timeout of lambdas that plan or run queries.", redeploy=True)
API_REQUESTS_PER_SECOND_MAX = declare("query.api.requests.per.second.max", whole_number(1, 10_000), 50, Group.QUERY, "The rate limit of the HTTP API and of the WebSocket, in requests per second.", redeploy=True)
API_BURST_MAX = declare("query.api.burst.max", whole_number(1, 5_000), 100, Group.QUERY, "The burst limit of the HTTP API and of the WebSocket, in requests.", redeploy=True)

ATHENA_MEMORY_MB = declare("athena.handler.memory.mb", _MEMORY_MB, 4096, Group.ATHENA, "Memory of the lambdas that Athena calls, in MiB. Must be more than a query's.", redeploy=True)
ATHENA_TIMEOUT_SECONDS = declare("athena.handler.timeout.seconds", _TIMEOUT_SECONDS, 900, Group.ATHENA, "The timeout of the lambdas that Athena calls.", redeploy=True)
ATHENA_SPILL_EXPIRY_DAYS = declare("athena.spill.bucket.ageoff.days", whole_number(1, 3650), 1, Group.ATHENA, "The retention of data that Athena queries spill, in days.", redeploy=True)

DASHBOARD_WINDOW_MINUTES = declare("dashboard.time.window.minutes", whole_number(1, 1440), 5, Group.STATE, "The interval of the dashboard's charts, in minutes.", redeploy=True)
METRICS_PERIOD_MINUTES = declare("metrics.table.period.minutes", whole_number(1), 5, Group.STATE, "The period of table metrics.", redeploy=True)
# fmt: on
