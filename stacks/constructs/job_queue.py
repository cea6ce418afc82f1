"""A queue with its dead letters."""

from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from sleeper.properties.deployed import DeployedQueue
from sleeper.properties.instance import QUEUE_RECEIVES_MAX, QUEUE_VISIBILITY_SECONDS
from stacks.constructs.key import find_key
from stacks.deployment import Deployment, queue_named

_KEPT = cdk.Duration.days(14)


@dataclass(frozen=True, slots=True)
class JobQueue:
    """A queue and its declaration."""

    declared: DeployedQueue
    queue: sqs.Queue


def make_job_queue(
    scope: Construct,
    deployment: Deployment,
    key: str,
    *,
    visibility_seconds: int | None = None,
    receives_max: int | None = None,
) -> JobQueue:
    """Returns the queue `key`. Messages that are received too often become dead letters.

    The instance's properties record the queue.
    """
    declared = queue_named(key)
    construct_id = key.title().replace("_", "") + "Queue"
    dead_name, name = deployment.name(declared.dead_letters_name), deployment.name(declared.name)
    dead = make_queue(scope, f"{construct_id}Dead", deployment, dead_name, fifo=declared.fifo)
    receives_max = receives_max or deployment.get(QUEUE_RECEIVES_MAX)
    dead_letters = sqs.DeadLetterQueue(queue=dead, max_receive_count=receives_max)
    visibility = cdk.Duration.seconds(
        visibility_seconds or deployment.get(QUEUE_VISIBILITY_SECONDS)
    )
    queue = make_queue(
        scope,
        construct_id,
        deployment,
        name,
        fifo=declared.fifo,
        visibility=visibility,
        dead=dead_letters,
    )
    deployment.record(declared.url, queue.queue_url, queue)
    deployment.record(declared.arn, deployment.queue_arn(declared.name))
    deployment.record(declared.dead_letters_url, dead.queue_url, dead)
    deployment.record(declared.dead_letters_arn, deployment.queue_arn(declared.dead_letters_name))
    deployment.queues.append(declared)
    return JobQueue(declared, queue)


def make_queue(
    scope: Construct,
    construct_id: str,
    deployment: Deployment,
    name: str,
    *,
    fifo: bool = False,
    kept: cdk.Duration = _KEPT,
    visibility: cdk.Duration | None = None,
    dead: sqs.DeadLetterQueue | None = None,
) -> sqs.Queue:
    """Returns an encrypted queue that requires TLS."""
    key = find_key(scope, construct_id, deployment)
    throughput = {
        "deduplication_scope": sqs.DeduplicationScope.MESSAGE_GROUP,
        "fifo_throughput_limit": sqs.FifoThroughputLimit.PER_MESSAGE_GROUP_ID,
    }
    return sqs.Queue(
        scope,
        construct_id,
        queue_name=name,
        fifo=True if fifo else None,
        visibility_timeout=visibility,
        dead_letter_queue=dead,
        retention_period=kept,
        encryption=sqs.QueueEncryption.KMS if key else sqs.QueueEncryption.SQS_MANAGED,
        encryption_master_key=key,
        enforce_ssl=True,
        **(throughput if fifo else {}),  # type: ignore[arg-type]
    )
