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
LAMBDA_CPU_ARCHITECTURE = declare("lambda.cpu.architecture", _ARCHITECTURE, "ARM64", Group.DEPLOYMENT, "The processor of lambdas.", redeploy=True)
LAMBDA_MEMORY_MB = declare("lambda.memory.mb", _MEMORY_MB, 1024, Group.DEPLOYMENT, "Memory of a lambda without a property of its own, in MiB. Its processor grows with it.", redeploy=True)
LAMBDA_TIMEOUT_SECONDS = declare("lambda.timeout.seconds", _TIMEOUT_SECONDS, 300, Group.DEPLOYMENT, "How long a lambda without a property of its own may run.", redeploy=True)
LAMBDA_DISK_MB = declare("lambda.ephemeral.storage.mb", whole_number(512, 10_240), 2048, Group.DEPLOYMENT, "The disk of a lambda that keeps copies of tables' states, in MiB.", redeploy=True)
TASK_DISK_GIB = declare("task.ephemeral.storage.gib", whole_number(21, 200), 50, Group.DEPLOYMENT, "The disk of a task, where sorts and merges spill, in GiB.", redeploy=True)
TRACING = declare("tracing", FLAG, True, Group.DEPLOYMENT, "Whether X-Ray traces lambdas.", redeploy=True)

COMMITTER_MEMORY_MB = declare("statestore.committer.lambda.memory.mb", _MEMORY_MB, 1769, Group.STATE, "Memory of the lambda that commits transactions, in MiB. 1769 is one whole processor.", redeploy=True)
COMMITTER_TIMEOUT_SECONDS = declare("statestore.committer.lambda.timeout.seconds", _TIMEOUT_SECONDS, 60, Group.STATE, "How long the lambda that commits transactions may run.", redeploy=True)
COMMITTER_CONCURRENCY_RESERVED = declare("statestore.committer.concurrency.reserved", whole_number(0, 10_000), 10, Group.STATE, "How much of the account's concurrency is reserved for the lambda that commits transactions, which is also the most that it uses. 0: none, for accounts whose quota is too small.", redeploy=True)

INGEST_CPU_ARCHITECTURE = declare("ingest.task.cpu.architecture", _ARCHITECTURE, "ARM64", Group.INGEST, "The processor of ingest tasks.", redeploy=True)
INGEST_TASK_PERIOD_MINUTES = declare("ingest.task.creation.period.minutes", whole_number(1), 1, Group.INGEST, "How often ingest tasks are started, if jobs wait.", redeploy=True)
BATCHER_PERIOD_MINUTES = declare("ingest.batcher.job.creation.period.minutes", whole_number(1), 1, Group.INGEST_BATCHER, "How often the ingest batcher makes jobs.", redeploy=True)

COMPACTION_TASK_PERIOD_MINUTES = declare("compaction.task.creation.period.minutes", whole_number(1), 1, Group.COMPACTION, "How often compaction tasks are started, if jobs wait.", redeploy=True)
COMPACTION_CREATION_MEMORY_MB = declare("compaction.job.creation.memory.mb", _MEMORY_MB, 2048, Group.COMPACTION, "Memory of the lambda that creates compaction jobs, in MiB.", redeploy=True)
COMPACTION_CREATION_TIMEOUT_SECONDS = declare("compaction.job.creation.timeout.seconds", _TIMEOUT_SECONDS, 300, Group.COMPACTION, "How long the lambda that creates compaction jobs may run.", redeploy=True)

SPLITTING_MEMORY_MB = declare("partition.splitting.memory.mb", _MEMORY_MB, 2048, Group.SPLITTING, "Memory of the lambda that splits a partition, in MiB.", redeploy=True)
SPLITTING_TIMEOUT_SECONDS = declare("partition.splitting.timeout.seconds", _TIMEOUT_SECONDS, 900, Group.SPLITTING, "How long the lambda that splits a partition may run.", redeploy=True)

QUERY_MEMORY_MB = declare("query.processor.memory.mb", _MEMORY_MB, 3008, Group.QUERY, "Memory of the lambdas that plan and run queries, in MiB.", redeploy=True)
QUERY_TIMEOUT_SECONDS = declare("query.processor.timeout.seconds", _TIMEOUT_SECONDS, 900, Group.QUERY, "How long a lambda that plans or runs queries may run.", redeploy=True)
API_REQUESTS_PER_SECOND_MAX = declare("query.api.requests.per.second.max", whole_number(1, 10_000), 50, Group.QUERY, "How many requests a second the HTTP API, and the WebSocket, take.", redeploy=True)
API_BURST_MAX = declare("query.api.burst.max", whole_number(1, 5_000), 100, Group.QUERY, "How many requests the HTTP API, and the WebSocket, take at once.", redeploy=True)

ATHENA_MEMORY_MB = declare("athena.handler.memory.mb", _MEMORY_MB, 4096, Group.ATHENA, "Memory of the lambdas that Athena calls, in MiB. Must be more than a query's.", redeploy=True)
ATHENA_TIMEOUT_SECONDS = declare("athena.handler.timeout.seconds", _TIMEOUT_SECONDS, 900, Group.ATHENA, "How long the lambdas that Athena calls may run.", redeploy=True)
ATHENA_SPILL_EXPIRY_DAYS = declare("athena.spill.bucket.ageoff.days", whole_number(1, 3650), 1, Group.ATHENA, "After how many days what Athena's reads spilled is deleted.", redeploy=True)

DASHBOARD_WINDOW_MINUTES = declare("dashboard.time.window.minutes", whole_number(1, 1440), 5, Group.STATE, "How many minutes a point in a chart of the dashboard stands for.", redeploy=True)
METRICS_PERIOD_MINUTES = declare("metrics.table.period.minutes", whole_number(1), 5, Group.STATE, "How often metrics of tables are reported.", redeploy=True)
# fmt: on
