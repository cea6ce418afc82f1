"""IAM statements for functions and tasks, with the least privilege for each.

The grants of the CDK's constructs have wildcard actions, so they are not used. Only garbage
collection deletes data: the files of a failed run become orphans.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aws_cdk import Aws
from aws_cdk import aws_iam as iam

from sleeper.properties.deployed import (
    CONFIG,
    INGEST_BATCHER,
    JOB_TRACKER,
    QUERY_RESULTS,
    QUERY_TRACKER,
    RECENT,
    TABLE_DATA,
    TABLE_INDEX_BY_ID,
    TABLE_INDEX_BY_NAME,
    TABLE_INDEX_BY_ONLINE,
    TASK_TRACKER,
    UPLOADS_PREFIX,
    WAITING,
    DeployedBucket,
    DeployedQueue,
    DeployedTable,
)
from sleeper.properties.instance import INGEST_SOURCE_BUCKETS
from stacks.deployment import Deployment, queue_named

_INDEXES = (TABLE_INDEX_BY_NAME, TABLE_INDEX_BY_ID, TABLE_INDEX_BY_ONLINE)
_READ_ITEMS = ("dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query")
WRITE_ITEMS = ("dynamodb:PutItem", "dynamodb:UpdateItem")
# Transactions delete items of the first kind, and batches those of the second.
_DELETE_ITEM, DELETE_ITEMS = "dynamodb:DeleteItem", "dynamodb:BatchWriteItem"

RESULTS_QUEUE = "query-results"
"""The default queue of query results. The names of clients' own queues start with it."""

# Folders below a table's folder in the data bucket.
DATA, STATE, LOG_BODIES, COMMITS = "data", "snapshots", "log", "commits"
# The only object of a table outside a folder, which records its creation.
BIRTHMARK = "created"


@dataclass(frozen=True, slots=True)
class Permission:
    """An IAM statement that allows these actions on these resources. `why` justifies a wildcard.

    `condition` is an operator, a key, and its value or values.
    """

    actions: Sequence[str]
    resources: Sequence[str]
    why: str = ""
    condition: tuple[str, str, str | Sequence[str]] | None = None


def read_properties(deployment: Deployment) -> list[Permission]:
    """Allows reading the properties of the instance, which every program needs."""
    return [
        Permission(("s3:GetObject",), objects_in(deployment, CONFIG, "instance.properties")),
        Permission(("s3:ListBucket",), [deployment.bucket_arn(CONFIG)]),
    ]


def find_tables(deployment: Deployment) -> list[Permission]:
    """Allows the same, and finding tables by name and id, with their properties and user code."""
    return [
        *read_properties(deployment),
        Permission(
            ("s3:GetObject",), objects_in(deployment, CONFIG, "tables/*"), "a file for each table"
        ),
        Permission(
            ("s3:GetObject",), objects_in(deployment, CONFIG, "code/*"), "wheels of user code"
        ),
        Permission(
            ("dynamodb:GetItem",),
            [deployment.table_arn(each) for each in (TABLE_INDEX_BY_NAME, TABLE_INDEX_BY_ID)],
        ),
    ]


def find_many_tables(deployment: Deployment) -> Permission:
    """Allows finding many tables by id at once."""
    return Permission(("dynamodb:BatchGetItem",), [deployment.table_arn(TABLE_INDEX_BY_ID)])


def list_tables(deployment: Deployment) -> Permission:
    """Allows listing all tables."""
    return Permission(("dynamodb:Scan",), [deployment.table_arn(TABLE_INDEX_BY_ID)])


def read_table_index(deployment: Deployment) -> list[Permission]:
    """Allows finding and listing tables in any way, as clients of gchq/sleeper do."""
    indexes = [deployment.table_arn(table) for table in _INDEXES]
    return [*find_tables(deployment), Permission((*_READ_ITEMS, "dynamodb:Scan"), indexes)]


def add_to_table_index(deployment: Deployment) -> list[Permission]:
    """Allows adding tables to the index, with their property files."""
    return [
        Permission(("dynamodb:PutItem",), [deployment.table_arn(table) for table in _INDEXES]),
        Permission(
            ("s3:PutObject",), objects_in(deployment, CONFIG, "tables/*"), "a file for each table"
        ),
    ]


def remove_deleted_tables(deployment: Deployment) -> list[Permission]:
    """Allows removing deleted tables, which only the index by id has, and their property files."""
    return [
        Permission(("dynamodb:PutItem", _DELETE_ITEM), [deployment.table_arn(TABLE_INDEX_BY_ID)]),
        Permission(
            ("s3:DeleteObject",),
            objects_in(deployment, CONFIG, "tables/*"),
            "a file for each table",
        ),
    ]


def change_table_index(deployment: Deployment) -> list[Permission]:
    """Allows creating, changing and removing tables in the index, and their property files."""
    return [
        Permission(
            ("dynamodb:PutItem", _DELETE_ITEM), [deployment.table_arn(table) for table in _INDEXES]
        ),
        Permission(
            ("s3:PutObject", "s3:DeleteObject"),
            objects_in(deployment, CONFIG, "tables/*"),
            "a file for each table",
        ),
    ]


def record_jobs(deployment: Deployment) -> Permission:
    """Allows recording jobs. Items expire, so nothing deletes them."""
    return Permission(("dynamodb:PutItem",), [deployment.table_arn(JOB_TRACKER)])


def see_job(deployment: Deployment) -> Permission:
    """Allows reading the state of a job by its id."""
    return Permission(("dynamodb:Query",), [deployment.table_arn(JOB_TRACKER)])


def see_jobs(deployment: Deployment) -> Permission:
    """Allows reading the states of many jobs by their ids."""
    actions = ("dynamodb:BatchGetItem", "dynamodb:Query")
    return Permission(actions, [deployment.table_arn(JOB_TRACKER)])


def run_task(deployment: Deployment) -> list[Permission]:
    """Allows recording a task, with its heartbeats, and its jobs."""
    tasks = deployment.table_arn(TASK_TRACKER)
    return [record_jobs(deployment), Permission(("dynamodb:PutItem",), [tasks])]


def read_jobs(deployment: Deployment) -> list[Permission]:
    """Allows reading and listing jobs and tasks."""
    arns = [deployment.table_arn(table) for table in (JOB_TRACKER, TASK_TRACKER)]
    return [
        Permission(_READ_ITEMS, arns),
        Permission(("dynamodb:Query",), [f"{arn}/index/{RECENT.name}" for arn in arns]),
    ]


def use_table(deployment: Deployment, table: DeployedTable) -> Permission:
    """Allows reading and changing all items of a DynamoDB table."""
    return Permission((*_READ_ITEMS, *WRITE_ITEMS), [deployment.table_arn(table)])


def delete_items(deployment: Deployment, table: DeployedTable) -> Permission:
    """Allows deleting items of a DynamoDB table."""
    return Permission((_DELETE_ITEM, DELETE_ITEMS), [deployment.table_arn(table)])


def see_waiting_files(deployment: Deployment) -> Permission:
    """Allows listing the files that wait to be ingested together, of one table and of all."""
    index = f"{deployment.table_arn(INGEST_BATCHER)}/index/{WAITING.name}"
    return Permission(("dynamodb:Query", "dynamodb:Scan"), [index])


def count(deployment: Deployment, *keys: str) -> Permission:
    """Allows reading the lengths of queues and of their dead-letter queues."""
    queues = [queue_named(key) for key in keys]
    names = [name for queue in queues for name in (queue.name, queue.dead_letters_name)]
    return Permission(("sqs:GetQueueAttributes",), [deployment.queue_arn(name) for name in names])


def count_all(deployment: Deployment) -> Permission:
    """Allows reading the lengths of all queues, including dead-letter queues."""
    return Permission(
        ("sqs:GetQueueAttributes",),
        [deployment.queue_arn("*")],
        "reports list every queue of the instance",
    )


_LIST_LETTERS = ("sqs:ReceiveMessage", "sqs:ChangeMessageVisibility")


def list_dead_letters(deployment: Deployment) -> Permission:
    """Allows listing the dead letters of all queues. A listing hides them for seconds."""
    return Permission(_LIST_LETTERS, _dead_letters(deployment))


def redrive_dead_letters(deployment: Deployment) -> Permission:
    """Allows listing dead letters, and deleting them, as after they were sent again."""
    return Permission((*_LIST_LETTERS, "sqs:DeleteMessage"), _dead_letters(deployment))


def _dead_letters(deployment: Deployment) -> list[str]:
    return [deployment.queue_arn(queue.dead_letters_name) for queue in deployment.queues]


def send_frames(deployment: Deployment, api_id: str, stage: str) -> Permission:
    """Allows sending frames to the connections of a WebSocket API."""
    return Permission(
        ("execute-api:ManageConnections",),
        [deployment.arn("execute-api", f"{api_id}/{stage}/POST/@connections/*")],
        "clients create connections",
    )


def send(deployment: Deployment, *keys: str) -> Permission:
    """Allows sending messages."""
    queues = [deployment.queue_arn(queue_named(key).name) for key in keys]
    return Permission(("sqs:SendMessage",), queues)


def receive(deployment: Deployment, queue: DeployedQueue) -> Permission:
    """Allows receiving, extending and deleting messages."""
    actions = (
        "sqs:ReceiveMessage",
        "sqs:DeleteMessage",
        "sqs:ChangeMessageVisibility",
        "sqs:GetQueueAttributes",
    )
    return Permission(actions, [deployment.queue_arn(queue.name)])


def read_objects(deployment: Deployment, *kinds: str) -> Permission:
    """Allows reading objects of these kinds of every table."""
    return Permission(("s3:GetObject",), _of_tables(deployment, kinds), _EVERY_TABLE)


def write_objects(deployment: Deployment, *kinds: str) -> Permission:
    """Allows writing objects of these kinds for every table."""
    actions = ("s3:PutObject", "s3:AbortMultipartUpload")
    return Permission(actions, _of_tables(deployment, kinds), _EVERY_TABLE)


def delete_objects(deployment: Deployment, *kinds: str) -> Permission:
    """Allows deleting objects of these kinds of every table."""
    return Permission(("s3:DeleteObject",), _of_tables(deployment, kinds), _EVERY_TABLE)


def read_sources(deployment: Deployment) -> list[Permission]:
    """Allows reading users' source buckets, and uploads in the data bucket."""
    arns = [f"arn:{Aws.PARTITION}:s3:::{name}" for name in deployment.get(INGEST_SOURCE_BUCKETS)]
    uploads = objects_in(deployment, TABLE_DATA, f"{UPLOADS_PREFIX}*")
    return [
        # Without it, S3 reports a missing object as forbidden.
        Permission(("s3:ListBucket",), [*arns, deployment.bucket_arn(TABLE_DATA)]),
        Permission(("s3:GetObject",), [*(f"{arn}/*" for arn in arns), *uploads], "files to ingest"),
    ]


def read_secrets(deployment: Deployment, secrets: Sequence[str]) -> list[Permission]:
    """Allows reading secrets by name or ARN."""
    if not secrets:
        return []
    arns = [each if each.startswith("arn:") else _secret_arn(deployment, each) for each in secrets]
    why = "Secrets Manager ends an ARN with six random characters"
    return [Permission(("secretsmanager:GetSecretValue",), arns, why)]


def _secret_arn(deployment: Deployment, name: str) -> str:
    return deployment.arn("secretsmanager", f"secret:{name}-??????")


def read_sketches(deployment: Deployment) -> Permission:
    """Allows reading the distribution of keys in data files, but no rows."""
    return Permission(
        ("s3:GetObject",), objects_in(deployment, TABLE_DATA, f"*/{DATA}/*.sketches"), _EVERY_TABLE
    )


def upload_files(deployment: Deployment) -> Permission:
    """Allows uploading files to the data bucket, for ingest jobs."""
    uploads = objects_in(deployment, TABLE_DATA, f"{UPLOADS_PREFIX}*")
    return Permission(("s3:PutObject", "s3:AbortMultipartUpload"), uploads, "files to ingest")


def read_queries(deployment: Deployment) -> list[Permission]:
    """Allows reading the states of queries by message, and listing the latest ones."""
    tracker = deployment.table_arn(QUERY_TRACKER)
    return [
        Permission(_READ_ITEMS, [tracker]),
        Permission(("dynamodb:Query",), [f"{tracker}/index/{RECENT.name}"]),
    ]


def read_results(deployment: Deployment) -> list[Permission]:
    """Allows reading the results of queries by message, of all callers."""
    results = deployment.bucket_arn(QUERY_RESULTS)
    return [
        Permission(("s3:ListBucket",), [results]),
        Permission(("s3:GetObject",), [f"{results}/query-*"], "a folder for each query"),
        Permission(
            ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"),
            [deployment.queue_arn(RESULTS_QUEUE)],
        ),
    ]


def pass_role(role: iam.IRole, service: str) -> Permission:
    """Allows passing the role to one service."""
    to = ("StringEquals", "iam:PassedToService", f"{service}.amazonaws.com")
    return Permission(("iam:PassRole",), [role.role_arn], condition=to)


def empty(deployment: Deployment, *buckets: DeployedBucket) -> list[Permission]:
    """Allows deleting all objects and versions in buckets."""
    arns = [deployment.bucket_arn(bucket) for bucket in buckets]
    return [
        Permission(("s3:ListBucket", "s3:ListBucketVersions"), arns),
        Permission(
            ("s3:DeleteObject", "s3:DeleteObjectVersion"),
            [f"{arn}/*" for arn in arns],
            "the bucket is deleted with its stack",
        ),
    ]


def change_instance_properties(deployment: Deployment) -> list[Permission]:
    """Allows reading and writing the file of instance properties."""
    return [
        Permission(
            ("s3:GetObject", "s3:PutObject"), objects_in(deployment, CONFIG, "instance.properties")
        ),
        Permission(("s3:ListBucket",), [deployment.bucket_arn(CONFIG)]),
    ]


def protect_tables(deployment: Deployment) -> list[Permission]:
    """Allows switching the deletion protection of lasting tables."""
    arns = [deployment.table_arn(table) for table in deployment.lasting_tables]
    return [Permission(("dynamodb:DescribeTable", "dynamodb:UpdateTable"), arns)]


def read_stack_status(deployment: Deployment) -> Permission:
    """Allows custom resources to see whether their stack is deleted."""
    stacks = deployment.arn("cloudformation", f"stack/{deployment.name('*')}/*")
    return Permission(("cloudformation:DescribeStacks",), [stacks], "names are generated")


_EVERY_TABLE = "tables are created at run time"


def _of_tables(deployment: Deployment, kinds: Iterable[str]) -> list[str]:
    below = (kind if kind == BIRTHMARK else f"{kind}/*" for kind in kinds)
    return [f"{deployment.bucket_arn(TABLE_DATA)}/*/{pattern}" for pattern in below]


def objects_in(deployment: Deployment, bucket: DeployedBucket, *patterns: str) -> list[str]:
    """Returns the ARNs of a bucket's objects by patterns of their keys."""
    return [f"{deployment.bucket_arn(bucket)}/{pattern}" for pattern in patterns]
