# ruff: noqa: E501 (one declaration a line reads as a table)
"""Declarations of instance properties that a deployment to AWS sets: its resources.

This is the only list of the instance's tables, buckets, rules and clusters; its queues are those of
`sleeper.systems`. Stacks create each resource under its name here and record its address, which
`sleeper.aws.instance` reads.
docs/formats.md, "Names and places", lists the names that clients read.
"""

from dataclasses import dataclass

from sleeper.properties.declaration import Group, Property, SetBy
from sleeper.properties.instance import declare
from sleeper.properties.value_kind import STRING_LIST, optional, text
from sleeper.system import Queue
from sleeper.systems import queues

_DEAD_LETTERS = "-dead-letters"
_FIFO = ".fifo"


def stack_name(instance_id: str) -> str:
    """Returns the name of an instance's stack, with which the names of its resources begin."""
    return f"sleeper-{instance_id.lower().replace('.', '-')}"


def declare_address(name: str, description: str) -> Property[str | None]:
    """Declares the property with the name or address of a resource."""
    kind = optional(text(2048))
    return declare(
        name, kind, None, Group.DEPLOYED, description, set_by=SetBy.DEPLOYMENT, redeploy=True
    )


@dataclass(frozen=True, slots=True)
class DeployedQueue:
    """A queue with its dead letters.

    `key` is what the code calls it (`QueueName`), `name` its name in AWS after the
    instance's prefix.
    """

    key: str
    name: str
    fifo: bool
    url: Property[str | None]
    arn: Property[str | None]
    dead_letters_url: Property[str | None]
    dead_letters_arn: Property[str | None]

    @property
    def dead_letters_name(self) -> str:
        """The name of the queue of its dead letters, after the instance's prefix."""
        plain = self.name.removesuffix(_FIFO)
        return f"{plain}{_DEAD_LETTERS}{_FIFO if self.fifo else ''}"


def _queue(queue: Queue) -> DeployedQueue:
    name, stem, content = queue.deployed_name, queue.stem, queue.content
    return DeployedQueue(
        queue.name,
        name,
        name.endswith(_FIFO),
        declare_address(f"{stem}.url", f"The URL of the queue of {content}."),
        declare_address(f"{stem}.arn", f"The ARN of the queue of {content}."),
        declare_address(_dead(stem, "url"), f"The URL of the dead letters of {content}."),
        declare_address(_dead(stem, "arn"), f"The ARN of the dead letters of {content}."),
    )


def _task_definition(kind: str) -> Property[str | None]:
    tasks = f"{kind.replace('_', ' ')} tasks"
    return declare_address(
        f"{kind.replace('_', '.')}.task.definition", f"The ECS task definition of {tasks}."
    )


def _dead(stem: str, ending: str) -> str:
    return f"{stem.removesuffix('.queue')}.dlq.{ending}"


DEPLOYED_QUEUES = {name: _queue(queue) for name, queue in queues().items()}

# fmt: off
CONFIG_BUCKET = declare_address("config.bucket", "The bucket of property files and user code.")
DATA_BUCKET = declare_address("data.bucket", "The bucket of tables' data files, state snapshots and big log entries.")
QUERY_RESULTS_BUCKET = declare_address("query.results.bucket", "The bucket of queries' results.")
BULK_IMPORT_BUCKET = declare_address("bulk.import.bucket", "The bucket that bulk import jobs work in.")

QUERY_RESULTS_QUEUE_URL = declare_address("query.results.queue.url", "The URL of the queue of results of queries that name no queue.")
QUERY_RESULTS_QUEUE_ARN = declare_address("query.results.queue.arn", "The ARN of the queue of results of queries that name no queue.")

QUERY_ROLE = declare_address("query.role.arn", "The role for clients that send queries and read their results.")
INGEST_BY_QUEUE_ROLE = declare_address("ingest.by.queue.role.arn", "The role for clients that upload files and send ingest and bulk import jobs.")
INGEST_DIRECT_ROLE = declare_address("ingest.direct.role.arn", "The role for clients that write data files and commit them themselves.")
ADMIN_ROLE = declare_address("admin.role.arn", "The role for administration: tables, properties, reports, deletes of rows. It deletes no data files.")


TABLE_NAME_INDEX = declare_address("tables.name.index.dynamo.table", "The DynamoDB table of the table index by name.")
TABLE_ID_INDEX = declare_address("tables.id.index.dynamo.table", "The DynamoDB table of the table index by id.")
TABLE_ONLINE_INDEX = declare_address("tables.online.index.dynamo.table", "The DynamoDB table of the table index by online and name.")
HOLDS_TABLE = declare_address("statestore.holds.table", "The DynamoDB table of holds on versions.")
TRANSACTION_LOG_TABLE = declare_address("statestore.transaction.log.table", "The DynamoDB table of transaction logs.")
JOB_TRACKER_TABLE = declare_address("tracker.jobs.table", "The DynamoDB table of the job tracker.")
TASK_TRACKER_TABLE = declare_address("tracker.tasks.table", "The DynamoDB table of the task tracker.")
INGEST_BATCHER_TABLE = declare_address("ingest.batcher.table", "The DynamoDB table of files that wait for the ingest batcher.")
QUERY_TRACKER_TABLE = declare_address("query.tracker.table.name", "The DynamoDB table of the query tracker.")
QUERY_WEBSOCKET_URL = declare_address("query.websocket.api.url", "The URL of the WebSocket that takes queries.")
HTTP_API_URL = declare_address("query.http.api.url", "The URL of the HTTP API.")
REST_API_URL = declare_address("rest.api.url", "The URL of the HTTP API, whose path /sleeper/tables creates tables.")
ADD_TABLE_URL = declare_address("rest.api.add.table.url", "The URL that creates tables, for clients of gchq/sleeper.")

NETWORK_VPC = declare_address("network.vpc.created", "The VPC that the deployment created. Unset: sleeper.vpc was given.")
TASK_SUBNETS = declare("task.subnets", STRING_LIST, (), Group.DEPLOYED, "The subnets that tasks run in.", set_by=SetBy.DEPLOYMENT, redeploy=True)
TASK_SECURITY_GROUP = declare_address("task.security.group", "The security group of tasks.")
TASK_CLUSTER = declare_address("task.cluster", "The ECS cluster of tasks.")
TASK_DEFINITIONS = {name: _task_definition(name) for name, queue in queues().items() if queue.tasks}
SERVERLESS_APPLICATION = declare_address("bulk.import.emr.serverless.application.id", "The EMR Serverless application of bulk imports.")
SERVERLESS_ROLE = declare_address("bulk.import.emr.serverless.role.arn", "The role of bulk imports on EMR Serverless.")
EMR_IMAGE = declare_address("bulk.import.emr.image", "The image that bulk imports run in on EMR clusters.")
EMR_MAIN_FILE = declare_address("bulk.import.emr.main.file", "The driver's file in S3, which YARN brings to the container of the driver on EMR clusters.")
EMR_SERVICE_ROLE = declare_address("bulk.import.emr.role.name", "The role that EMR itself makes clusters with.")
EMR_INSTANCE_PROFILE = declare_address("bulk.import.emr.ec2.role.name", "The instance profile of the nodes of clusters.")
EMR_SECURITY_CONFIGURATION = declare_address("bulk.import.emr.security.conf.name", "The security configuration of clusters.")
EMR_SECURITY_GROUP = declare_address("bulk.import.emr.security.group", "The security group of the nodes of clusters.")
EMR_SERVICE_SECURITY_GROUP = declare_address("bulk.import.emr.service.security.group", "The security group by which EMR reaches the nodes of clusters.")
EKS_IMAGE = declare_address("bulk.import.eks.image", "The image that bulk imports run in on EKS.")
EKS_STATE_MACHINE = declare_address("bulk.import.eks.statemachine.arn", "The state machine that runs bulk imports on EKS.")
BILLED_PARTS = declare("billed.parts", STRING_LIST, (), Group.DEPLOYED, "The functions with their memory in MB, the tasks with their CPU units and memory in MB, and the number of alarms, by which `sleeper report costs` calculates.", set_by=SetBy.DEPLOYMENT, redeploy=True)
SCHEDULE_RULES = declare("schedule.rules", STRING_LIST, (), Group.DEPLOYED, "The EventBridge rules that start the instance's background work.", set_by=SetBy.DEPLOYMENT, redeploy=True)
SCHEDULE_ALARMS = declare("schedule.alarms", STRING_LIST, (), Group.DEPLOYED, "The CloudWatch alarms that fire if schedules do not run, whose actions are off while the instance is paused.", set_by=SetBy.DEPLOYMENT, redeploy=True)
# fmt: on


@dataclass(frozen=True, slots=True)
class DeployedBucket:
    """A bucket. `name` is the part between the instance's prefix and the account.

    Names with the region have `short_name` instead, of at most 6 letters, because S3 allows 63.
    A `lasting` bucket can outlive the deployment.
    """

    name: str
    short_name: str
    place: Property[str | None]
    lasting: bool = False


TIME_TO_LIVE = "expiryDate"


@dataclass(frozen=True, slots=True)
class Key:
    """The attributes of a key: `S` text or `N` number."""

    hash: str
    range: str | None = None
    range_type: str = "S"


@dataclass(frozen=True, slots=True)
class Index:
    """A global secondary index, by default of keys only."""

    name: str
    key: Key
    holds_all: bool = False


@dataclass(frozen=True, slots=True)
class DeployedTable:
    """A DynamoDB table. `name` is the part after the instance's prefix.

    Items of one that `expires` have an `expiryDate`. `lasting` tables cannot be recreated from the
    log, so they have continuous backups.
    """

    name: str
    place: Property[str | None]
    key: Key
    index: Index | None = None
    expires: bool = False
    lasting: bool = False


UPLOADS_PREFIX = "for_ingest/"
"""Keys of files in the data bucket that clients upload there before they name them in a job."""

# fmt: off
CONFIG = DeployedBucket("config", "config", CONFIG_BUCKET, lasting=True)
TABLE_DATA = DeployedBucket("table-data", "data", DATA_BUCKET, lasting=True)
QUERY_RESULTS = DeployedBucket("query-results", "query", QUERY_RESULTS_BUCKET)
BULK_IMPORT = DeployedBucket("bulk-import", "import", BULK_IMPORT_BUCKET)

# By name, by id: by key. By online: tables by name (a range).
TABLE_INDEX_BY_NAME = DeployedTable("table-index-by-name", TABLE_NAME_INDEX, Key("TableName"), lasting=True)
TABLE_INDEX_BY_ID = DeployedTable("table-index-by-id", TABLE_ID_INDEX, Key("TableId"), lasting=True)
TABLE_INDEX_BY_ONLINE = DeployedTable("table-index-by-online", TABLE_ONLINE_INDEX, Key("Online", "TableName"), lasting=True)
# The head, an entry by number, a cursor: by key. Entries after a number, in order: a range of one table's items.
TRANSACTION_LOG = DeployedTable("transaction-log", TRANSACTION_LOG_TABLE, Key("tableId", "item"), lasting=True)
# All events of a job or task: its items. The newest by kind: parallel ranges of the index (see `aws.trackers`).
RECENT = Index("recent", Key("listing", "at", "N"))
# A hold: by key. The holds of a table: its items.
HOLDS = DeployedTable("holds", HOLDS_TABLE, Key("tableId", "id"), expires=True)
JOB_TRACKER = DeployedTable("job-tracker", JOB_TRACKER_TABLE, Key("job", "event"), RECENT, expires=True)
TASK_TRACKER = DeployedTable("task-tracker", TASK_TRACKER_TABLE, Key("task", "event"), RECENT, expires=True)
# A query or subquery: by key. The newest queries: the index.
QUERY_TRACKER = DeployedTable("query-tracker", QUERY_TRACKER_TABLE, Key("queryId", "subQueryId"), RECENT, expires=True)
# A request: by key. The requests of a table that wait: the index.
WAITING = Index("waiting", Key("waiting", "received", "N"), holds_all=True)
INGEST_BATCHER = DeployedTable("ingest-batcher", INGEST_BATCHER_TABLE, Key("tableId", "requestId"), WAITING, expires=True, lasting=True)
# fmt: on
DEPLOYED_TABLES = (
    TRANSACTION_LOG,
    HOLDS,
    TABLE_INDEX_BY_NAME,
    TABLE_INDEX_BY_ID,
    TABLE_INDEX_BY_ONLINE,
    JOB_TRACKER,
    TASK_TRACKER,
    QUERY_TRACKER,
    INGEST_BATCHER,
)
