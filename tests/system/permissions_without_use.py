"""Permissions that no test of a deployed instance uses, with the reasons why roles have them.

Each line is a pattern of roles, of actions and of resources, and the reason. A line that is
about no permission fails the test, so one that is removed leaves the table.
"""

NOT_RUN = {
    "*DefinitionExecutionRole": "ECS starts containers with it",
    "Athena/*": "Athena is not in the emulator; requests of it are tested without a deployment",
    "ClientRoles/IngestByQueue": "its messages are sent by a user with the policy of clients.md",
    "ClientRoles/IngestDirect": "programs of users take it on",
    "ClientRoles/Query": "its queries are sent by a user with the policy of clients.md",
    "Eks/*": "Kubernetes is not in the emulator",
    "Emr/*": "clusters are not in the emulator",
    "GarbageCollection/Orphans*": "orphans are a fortnight old",
    "HttpApi/*": "the emulator's HTTP APIs run no functions from images",
    "Metrics/*": "metrics of tables are tested without a deployment",
    "PersistentEmr/*": "clusters are not in the emulator",
}
"""Roles that no test of a deployed instance takes on."""

MAY_RUN = {
    "*/StopRole": "only one of the tests deletes its stack",
    "Storage/EmptierRole": "only one of the tests deletes its stack, which has no results",
    "Watch/WatchRole": "its schedule may come within a test",
}
"""Roles that tests take on if they happen to be slow, or for a part of what they do."""

REFUSED = (
    # Until its own policy allows the functions, and then by that policy alone.
    "arn:aws:s3:::my-own/*",
    "arn:aws:sqs:*:my-own",
)
"""Resources that roles are refused, as tests expect."""

_EMULATED = "AWS does it with the role, and the emulator without"
_PARTS = "a large object is uploaded in parts, which are deleted if it fails"
_LARGE = "a large entry or commit has an object of its own"
_MISSING = "without it, S3 reports a missing object as forbidden"
_NEW_STATE = "a process without a state begins with the newest snapshot, if there is one"
_RETRY = "a message is returned early, or renewed while its job is long"
_RENEWED = "a hold is renewed after a minute"
_CLIENTS = "clients of gchq/sleeper read the table index in their own way"
_LIFE = "administrators do more than the test"
_UNRUN = "a table of a deployment is changed, or its creation fails"
_LARGE_EXPORTS = "large exports have objects of their own; queues are deleted"
_CLEANED = "one publication in 32 deletes what no version needs"
_REPLACED = "an exporter that replaces rows reads the target table"

UNUSED: tuple[tuple[str, str, str, str], ...] = (
    ("*", "logs:*", "*", _EMULATED),
    ("*", "iam:PassRole", "*", _EMULATED),
    ("*/TaskStartRole", "ecs:TagResource", "*", _EMULATED),
    ("*/TaskStartRole", "ecs:RunTask", "task-definition/*-task", "a family without a revision"),
    ("EmrServerless/*", "emr-serverless:*", "*", "EMR Serverless is not in the emulator"),
    ("ExportQueues/FollowRole", "dynamodb:*", "*stream*", _EMULATED),
    ("ExportQueues/FollowRole", "dynamodb:ListStreams", "*", _EMULATED),
    ("*", "sqs:ReceiveMessage", "*", _EMULATED),
    ("*", "sqs:DeleteMessage", "*", _EMULATED),
    ("*", "sqs:GetQueueAttributes", "*", _EMULATED),
    ("*", "sqs:ChangeMessageVisibility", "*", _RETRY),
    ("*", "s3:AbortMultipartUpload", "*", _PARTS),
    ("*", "s3:ListBucket", "*", _MISSING),
    ("*", "s3:GetObject", "*config/code/*", "no table of the tests has user code"),
    ("*", "s3:GetObject", "*table-data/*/snapshots/*", _NEW_STATE),
    ("*", "s3:*Object", "*table-data/*/log/*", _LARGE),
    ("*", "s3:*Object", "*table-data/*/commits/*", _LARGE),
    ("*", "sqs:SendMessage", "transaction-commits.fifo", "commits by queue are a choice"),
    ("*", "dynamodb:UpdateItem", "table/holds", _RENEWED),
    ("*", "dynamodb:GetItem", "table/table-index-by-*", "messages name tables by name or id"),
    ("*", "s3:GetObject", "*config/tables/*", "properties are read by some paths only"),
    ("*", "s3:GetObject", "*table-data/for_ingest/*", "files are uploaded by clients"),
    ("Adapters/TaskRole", "dynamodb:Query", "table/*", "a run that is sent again"),
    ("Adjunct/Role", "dynamodb:Query", "table/holds", _RENEWED),
    ("Adjunct/Role", "s3:GetObject", "*table-data/*/data/*", "the table of the test is empty"),
    ("BulkExport/TaskRole", "dynamodb:Query", "table/holds", _RENEWED),
    ("ClientRoles/Admin", "dynamodb:*", "table/table-index-by-*", _CLIENTS),
    ("ClientRoles/Admin", "dynamodb:*Get*Item", "table/*-tracker", "clients read records too"),
    ("ClientRoles/Admin", "dynamodb:*", "table/export-queues", _LIFE),
    ("ClientRoles/Admin", "dynamodb:DescribeTable", "table/query-tracker", _LIFE),
    ("ClientRoles/Admin", "events:EnableRule", "rule/*", _LIFE),
    ("ClientRoles/Admin", "events:DisableRule", "rule/follow-exports", _LIFE),
    ("ClientRoles/Admin", "events:DisableRule", "rule/publish-tables", _LIFE),
    ("ClientRoles/Admin", "dynamodb:Query", "table/ingest-batcher/index/waiting", _LIFE),
    ("ClientRoles/Admin", "sqs:SendMessage", "*", _LIFE),
    ("ClientRoles/Admin", "s3:*Object", "*", _LIFE),
    ("Compaction/JobsHandlerRole", "dynamodb:*", "table/job-tracker", "a job without a record"),
    (
        "EmrServerless/StartRole",
        "s3:GetObject",
        "*bulk-import/runs/*",
        "a message that comes again",
    ),
    ("EmrServerless/WatchRole", "dynamodb:*", "table/*", "a run that ended without a record"),
    ("ExportQueues/DrainRole", "dynamodb:*", "table/holds", _REPLACED),
    ("ExportQueues/DrainRole", "s3:GetObject", "*table-data/*/data/*", _REPLACED),
    (
        "ExportQueues/FollowRole",
        "dynamodb:*",
        "table/holds",
        "queues on snapshot tables hold versions",
    ),
    ("ExportQueues/*", "*", "*export-queues*", _LARGE_EXPORTS),
    ("ExportQueues/DrainRole", "sqs:SendMessage", "export-queue.fifo", "a drain that ends early"),
    (
        "GarbageCollection/FilesHandlerRole",
        "dynamodb:BatchWriteItem",
        "table/holds",
        "a hold expires",
    ),
    ("GarbageCollection/SweepRole", "dynamodb:*", "table/*", "clones of deleted tables, retention"),
    (
        "GarbageCollection/SweepRole",
        "s3:DeleteObject",
        "*table-data/*/iceberg/*",
        "no deleted table was published",
    ),
    ("Iceberg/PublishRole", "dynamodb:*", "*stream*", _EMULATED),
    ("Iceberg/PublishRole", "dynamodb:ListStreams", "*", _EMULATED),
    ("Iceberg/PublishRole", "s3:DeleteObject", "*table-data/*/iceberg/*", _CLEANED),
    ("Iceberg/PublishRole", "s3:GetObject", "*table-data/*/data/*", "files that are read in part"),
    ("Iceberg/PublishRole", "dynamodb:BatchWriteItem", "table/holds", "a hold is given up"),
    ("Ingest/TaskRole", "s3:GetObject", "*table-data/*/data/*", "tables that fill fields"),
    ("Ingest/TaskRole", "dynamodb:*", "table/holds", "tables that fill fields"),
    ("IngestBatcher/CreateBatchesRole", "dynamodb:*", "table/job-tracker", "a job sent again"),
    ("IngestBatcher/CreateBatchesRole", "sqs:SendMessage", "bulk-import-*", "one queue per table"),
    ("Properties/DefineRole", "dynamodb:*", "table/*", _UNRUN),
    ("Properties/DefineRole", "s3:DeleteObject", "*config/tables/*", _UNRUN),
    ("Query/PlanRole", "dynamodb:BatchWriteItem", "table/holds", "a plan that fails"),
    ("Query/PlanRole", "s3:DeleteObject", "*query-results/query-*", "an id that comes again"),
    ("Query/RunRole", "dynamodb:*", "table/*", "a query without a plan's hold"),
    ("Splitting/SplitRole", "dynamodb:PutItem", "table/job-tracker", "a rejected message"),
    ("Stash/AdvanceRole", "s3:GetObject", "*table-data/*.sketches", "large leaves are divided"),
    ("Stash/AdvanceRole", "s3:DeleteObject", "*stashes/*", "old stashes are pruned"),
    ("Stash/TaskRole", "dynamodb:Query", "table/holds", "a collection since the stash began"),
    ("Stash/TaskRole", "dynamodb:PutItem", "table/job-tracker", "a rejected message"),
    ("Watch/WatchRole", "lambda:*", "*", "polls are switched if the watch finds a change"),
    ("*/StopRole", "*", "*", "no machine runs when the stack is deleted"),
    ("Storage/EmptierRole", "*", "*", "no bucket has results when the stack is deleted"),
    ("Watch/WatchRole", "*", "*", "most of it is read in the first minutes of an hour"),
    ("Stash/TaskRole", "s3:GetObject", "*stashes/*", "a task that runs again"),
    (
        "StateStore/SnapshotsHandlerRole",
        "s3:DeleteObject",
        "*table-data/*/snapshots/*",
        "older ones",
    ),
)
"""Permissions that allowed no call."""
