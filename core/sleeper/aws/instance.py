"""Opens an instance that is deployed to AWS.

Its configuration is `instance.properties` in its config bucket. The query engine is loaded on
first use, and a service gets no request before one is needed.
"""

import contextlib
import functools
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sleeper.aws.clients import (
    ConfigBucketNames,
    GatewayConnections,
    aws_client,
    check_owner,
    config_bucket_names,
    describe_bucket,
    describe_old_versions,
)
from sleeper.aws.config_bucket import INSTANCE_FILE, CodeObjects, PropertyFiles, deployed_value
from sleeper.aws.dead_letters import BodyRewriter, SqsDeadLetters
from sleeper.aws.dynamo import DynamoItems
from sleeper.aws.external_queue import open_external_queue
from sleeper.aws.file_requests import DynamoFileRequests
from sleeper.aws.holds import DynamoHolds
from sleeper.aws.process_folder import ProcessFolder
from sleeper.aws.query_tracker import DynamoQueryTracker
from sleeper.aws.queue import SqsQueue, SqsResultsQueue
from sleeper.aws.schedules import switch_rules
from sleeper.aws.secrets import read_managed_secret
from sleeper.aws.shared_appends import SharedAppends
from sleeper.aws.sources import AwsSources
from sleeper.aws.state_copies import CopyLimits, StateCopies
from sleeper.aws.tables import AwsTables, DynamoTableIndex, TableIndexNames
from sleeper.aws.task_launcher import EcsTaskLauncher
from sleeper.aws.trackers import DynamoJobTracker, DynamoTaskTracker
from sleeper.aws.transaction_log import DynamoTransactionLog
from sleeper.aws.usage import read_monthly_use
from sleeper.bulk_export.properties import BULK_EXPORT_BUCKET
from sleeper.clock import Clock, system_clock
from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError
from sleeper.instance import AWS_PREFIX, Instance, Jobs, Queries, Storage, Tables
from sleeper.jobs.event import JobKind
from sleeper.jobs.ingest_job import add_id, add_requester
from sleeper.jobs.queue import QueueName
from sleeper.jobs.spark_platform import PlatformName, SparkPlatform
from sleeper.properties.declaration import Property
from sleeper.properties.deployed import (
    BULK_IMPORT_BUCKET,
    DATA_BUCKET,
    DEPLOYED_QUEUES,
    HOLDS_TABLE,
    INGEST_BATCHER_TABLE,
    JOB_TRACKER_TABLE,
    NETWORK_VPC,
    QUERY_RESULTS_BUCKET,
    QUERY_RESULTS_QUEUE_URL,
    QUERY_TRACKER_TABLE,
    QUERY_WEBSOCKET_URL,
    TABLE_ID_INDEX,
    TABLE_NAME_INDEX,
    TABLE_ONLINE_INDEX,
    TASK_CLUSTER,
    TASK_DEFINITIONS,
    TASK_SECURITY_GROUP,
    TASK_SUBNETS,
    TASK_TRACKER_TABLE,
    TRANSACTION_LOG_TABLE,
)
from sleeper.properties.instance import (
    ID,
    NETWORK_ENDPOINTS,
    QUERY_TRACKER_DAYS,
    REGION,
    SPILL_DIRECTORY,
    STATE_COPIES_BYTES,
    STATE_COPIES_MAX,
    TRACKER_DAYS,
)
from sleeper.properties.values import InstanceProperties
from sleeper.query.messages.query import rewrite_query_body
from sleeper.storage.bucket import MissingBucketError, open_bucket
from sleeper.storage.location import DataRoot
from sleeper.system_ports import SystemPorts, open_enricher
from sleeper.systems import load, queues, systems
from sleeper.tables import TableId
from sleeper.temporary import temporary_folder
from sleeper.user_code.loading import UserCode
from sleeper.user_code.registry import Registry

if TYPE_CHECKING:
    from sleeper.query.engine import QueryEngine

_UNPACKED_FOLDER = "code"
CONFIG_BUCKET_VARIABLE = "SLEEPER_CONFIG_BUCKET"
CONFIG_BUCKET_OWNER_VARIABLE = "SLEEPER_CONFIG_BUCKET_OWNER"
STATE_FOLDER_VARIABLE = "SLEEPER_STATE_FOLDER"


def open_aws_instance(
    instance_id: str, clock: Clock = system_clock, config_bucket: str | None = None
) -> Instance:
    """Opens the instance of that id. NotFoundError if this account and region have none.

    `config_bucket` or SLEEPER_CONFIG_BUCKET names its config bucket, by default that of the
    credentials' account. InvalidRequestError if another account than expected owns the bucket.
    Copies of tables' states are below SLEEPER_STATE_FOLDER, by default in the temporary folder.
    """
    files = _property_files(instance_id, config_bucket)
    properties = files.instance()
    location = _state_folder() / instance_id
    folder = ProcessFolder(location)
    root = DataRoot(describe_bucket(deployed_value(properties, DATA_BUCKET)))
    log_table = deployed_value(properties, TRANSACTION_LOG_TABLE)
    holds_table = deployed_value(properties, HOLDS_TABLE)
    dynamo = aws_client("dynamodb")
    appends = SharedAppends(DynamoItems(dynamo, log_table, "transaction log"))
    days = properties.get(TRACKER_DAYS)

    def open_log(table_id: TableId) -> DynamoTransactionLog:
        return DynamoTransactionLog(dynamo, log_table, table_id, root.store, appends)

    def limits() -> CopyLimits:
        now = files.instance()
        return CopyLimits(now.get(STATE_COPIES_MAX), now.get(STATE_COPIES_BYTES))

    index = DynamoTableIndex(dynamo, _index_names(properties))
    open_holds = functools.partial(DynamoHolds, dynamo, holds_table)
    copies = StateCopies(folder.path, open_log, open_holds, root.store, limits, clock)
    tables = AwsTables(index, root, files, copies, open_log)

    @functools.cache
    def query_engine() -> "QueryEngine":
        from sleeper.query.engine import QueryEngine, query_settings

        settings = query_settings(files.instance(), spill_folder(), root.buckets)
        return QueryEngine(settings, clock)

    tasks = DynamoTaskTracker(dynamo, deployed_value(properties, TASK_TRACKER_TABLE), days)
    enricher = open_enricher(clock)
    ports = SystemPorts(
        {each.name: each.aws_port for each in systems() if each.aws_port is not None},
        lambda open_port: open_port(files.instance, root.store, clock),
    )
    spill_folders: dict[Path, ProcessFolder] = {}

    def locked_folder(parent: Path) -> ProcessFolder:
        return spill_folders.setdefault(parent, ProcessFolder(parent))

    def spill_folder() -> Path:
        chosen = files.instance().get(SPILL_DIRECTORY)
        return (
            folder if chosen is None else locked_folder(temporary_folder(instance_id, Path(chosen)))
        ).spill()

    def switch_schedules(on: bool) -> tuple[str, ...]:
        return switch_rules(files.instance(), on)

    def close() -> None:
        enricher.close()
        ports.close()
        copies.close()
        for location in (folder, *spill_folders.values()):
            location.close()

    return Instance(
        where=f"{AWS_PREFIX}{instance_id}",
        properties=files.instance,
        change_properties=files.change_instance,
        tables=Tables(
            index=index,
            properties=files,
            state=copies.get,
            create=tables.create,
            install=tables.install,
            delete=tables.remove,
            abandoned=tables.abandoned,
            announce_commits=appends.announced,
        ),
        jobs=Jobs(
            tracker=DynamoJobTracker(dynamo, deployed_value(properties, JOB_TRACKER_TABLE), days),
            tasks=tasks,
            has_remote_tasks=True,
            queues=tuple(q for q in QueueName if properties.get(DEPLOYED_QUEUES[q.value].url)),
            queue=lambda name: SqsQueue(aws_client("sqs"), name.value, *_queue_urls(files, name)),
            dead_letters=lambda name: _dead_letters(files, name),
            external_queue=open_external_queue,
            file_requests=lambda: DynamoFileRequests(
                dynamo, deployed_value(files.instance(), INGEST_BATCHER_TABLE)
            ),
            launcher=lambda kind: _launcher(files.instance(), kind),
            spark_platform=lambda name: _platform(files.instance(), name),
        ),
        storage=Storage(
            root=root,
            exports=lambda: _own_bucket(files.instance(), root, BULK_EXPORT_BUCKET, "exports"),
            imports=lambda: _own_bucket(files.instance(), root, BULK_IMPORT_BUCKET, "imports"),
            sources=AwsSources(root, files.instance),
            spill_folder=spill_folder,
            shared_folder=lambda name: _shared_folder(files.instance(), location) / name,
            find_old_versions=lambda: describe_old_versions(root.buckets[0].name),
        ),
        queries=Queries(
            engine=query_engine,
            tracker=functools.cache(lambda: _query_tracker(files.instance(), clock)),
            results_root=functools.cache(lambda bucket: _results_root(files.instance(), bucket)),
            results_queue=functools.lru_cache(64)(lambda url: _results_queue(files, url)),
            send_frame=GatewayConnections(lambda: files.instance().get(QUERY_WEBSOCKET_URL)).send,
        ),
        background=None,
        switch_schedules=switch_schedules,
        code=UserCode(Registry(CodeObjects(files.store)), location / _UNPACKED_FOLDER),
        read_secret=read_managed_secret,
        open_enrichment=enricher.open,
        systems=ports,
        clock=clock,
        close=close,
        monthly_use=lambda size: read_monthly_use(files.instance(), tasks, clock(), size),
    )


def _shared_folder(properties: InstanceProperties, folder: Path) -> Path:
    chosen = properties.get(SPILL_DIRECTORY)
    return folder if chosen is None else temporary_folder(folder.name, Path(chosen))


def _property_files(instance_id: str, config_bucket: str | None) -> PropertyFiles:
    """Returns the instance's property files, after a check that they exist and are its own.

    A bucket whose name follows from the id must belong to the account of the credentials, or to
    SLEEPER_CONFIG_BUCKET_OWNER. Of a bucket that was named, only the latter is checked.
    """
    ID.parse(instance_id)
    bucket = config_bucket or os.environ.get(CONFIG_BUCKET_VARIABLE)
    owner = os.environ.get(CONFIG_BUCKET_OWNER_VARIABLE)
    if bucket:
        files = _files_in(bucket, instance_id)
    else:
        names = config_bucket_names(instance_id)
        files = _find_files(names, instance_id)
        owner = owner or names.account
    if owner:
        check_owner(files.bucket_name, INSTANCE_FILE, owner)
    return files


def _find_files(names: ConfigBucketNames, instance_id: str) -> PropertyFiles:
    try:
        files = _files_in(names.plain, instance_id)
    except SleeperError:
        # S3 redirects requests for a bucket of another region.
        with contextlib.suppress(NotFoundError):
            return _files_in(names.with_region, instance_id)
        raise
    if files.instance().get(REGION) not in (None, names.region):
        with contextlib.suppress(NotFoundError):
            return _files_in(names.with_region, instance_id)
    return files


def _files_in(bucket: str, instance_id: str) -> PropertyFiles:
    files = PropertyFiles(open_bucket(describe_bucket(bucket)), bucket)
    try:
        owner = files.instance().get(ID)
    except (NotFoundError, MissingBucketError) as error:
        raise NotFoundError(
            f"instance aws:{instance_id} is not in this account and region: {error}"
        ) from error
    if owner != instance_id:
        raise InvalidRequestError(
            f"instance aws:{instance_id}: bucket {bucket} belongs to instance {owner!r}"
        )
    return files


def _own_bucket(
    properties: InstanceProperties, root: DataRoot, declaration: Property[str | None], kind: str
) -> DataRoot:
    bucket = properties.get(declaration)
    if not bucket:
        raise InvalidRequestError(f"the instance has no bucket for bulk {kind}")
    (own,) = root.buckets
    return DataRoot(replace(own, name=bucket, prefix=""))


def _index_names(properties: InstanceProperties) -> TableIndexNames:
    return TableIndexNames(
        deployed_value(properties, TABLE_NAME_INDEX),
        deployed_value(properties, TABLE_ID_INDEX),
        deployed_value(properties, TABLE_ONLINE_INDEX),
    )


def _results_queue(files: PropertyFiles, url: str | None) -> SqsResultsQueue:
    chosen = deployed_value(files.instance(), QUERY_RESULTS_QUEUE_URL) if url is None else url
    return SqsResultsQueue(aws_client("sqs"), chosen)


def _queue_urls(files: PropertyFiles, name: QueueName) -> tuple[str, str]:
    """Returns the URLs of a queue and of its dead-letter queue."""
    queue, properties = DEPLOYED_QUEUES[name.value], files.instance()
    if properties.get(queue.url) is None:
        raise NotFoundError(f"the instance was deployed without queue {name.value!r}")
    return deployed_value(properties, queue.url), deployed_value(properties, queue.dead_letters_url)


def _dead_letters(files: PropertyFiles, name: QueueName) -> SqsDeadLetters:
    client, urls = aws_client("sqs"), _queue_urls(files, name)
    return SqsDeadLetters(client, name.value, *urls, rewrite_body=body_rewriter(name))


def body_rewriter(name: QueueName) -> BodyRewriter:
    """Returns the function that rewrites the bodies of a queue's redriven messages."""
    if name is QueueName.QUERY:
        return rewrite_query_body
    if name is QueueName.DELETION:
        return lambda body, message_id, sender: add_requester(body, "id", message_id, sender)
    member = queues()[name.value].id_member
    if member is not None:
        return lambda body, message_id, _sender: add_id(body, member, message_id)
    return lambda body, _message_id, _sender: body


def _launcher(properties: InstanceProperties, kind: JobKind) -> EcsTaskLauncher:
    queue = queues().get(kind.value)
    tasks = None if queue is None else queue.tasks
    if tasks is None:
        kinds = ", ".join(TASK_DEFINITIONS)
        raise InvalidRequestError(f"invalid task kind: {kind.value} (expected one of {kinds})")
    subnets = properties.get(load(tasks.subnets) if tasks.subnets else TASK_SUBNETS)
    groups: tuple[str, ...] = (
        properties.get(load(tasks.security_groups))
        if tasks.security_groups
        else (deployed_value(properties, TASK_SECURITY_GROUP),)
    )
    is_created = properties.get(NETWORK_VPC) is not None and subnets == properties.get(TASK_SUBNETS)
    return EcsTaskLauncher(
        aws_client("ecs"),
        deployed_value(properties, TASK_CLUSTER),
        deployed_value(properties, TASK_DEFINITIONS[kind.value]),
        subnets,
        groups,
        has_public_addresses=is_created and not properties.get(NETWORK_ENDPOINTS),
    )


def _platform(properties: InstanceProperties, name: PlatformName) -> SparkPlatform:
    from sleeper.aws.spark_platforms import open_platform

    return open_platform(properties, name)


def _query_tracker(properties: InstanceProperties, clock: Clock) -> DynamoQueryTracker:
    name, days = deployed_value(properties, QUERY_TRACKER_TABLE), properties.get(QUERY_TRACKER_DAYS)
    return DynamoQueryTracker(aws_client("dynamodb"), name, days, clock)


def _results_root(properties: InstanceProperties, bucket: str | None) -> DataRoot:
    return DataRoot(describe_bucket(bucket or deployed_value(properties, QUERY_RESULTS_BUCKET)))


def _state_folder() -> Path:
    chosen = os.environ.get(STATE_FOLDER_VARIABLE)
    if chosen:
        return Path(chosen)
    return temporary_folder("state")
