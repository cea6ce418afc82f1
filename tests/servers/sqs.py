"""Makes queues on an SQS server, as a deployment does."""

import json
from dataclasses import dataclass
from typing import Any

from sleeper.jobs.queue import QueueSettings


@dataclass(frozen=True)
class QueuePair:
    """A queue and its dead letters."""

    url: str
    dead_letters_url: str


def make_queue(client: Any, name: str, settings: QueueSettings) -> QueuePair:
    """A queue of that name, which ends in `.fifo` if it is one."""
    ending = ".fifo" if settings.fifo else ""
    fifo = {"FifoQueue": "true"} if settings.fifo else {}
    dead = client.create_queue(QueueName=f"{name}-dead-letters{ending}", Attributes=fifo)
    attributes = client.get_queue_attributes(QueueUrl=dead["QueueUrl"], AttributeNames=["QueueArn"])
    redrive = {
        "deadLetterTargetArn": attributes["Attributes"]["QueueArn"],
        "maxReceiveCount": settings.receives_max,
    }
    queue_ = client.create_queue(
        QueueName=f"{name}{ending}",
        Attributes={
            **fifo,
            "VisibilityTimeout": str(settings.visibility_timeout_seconds),
            "RedrivePolicy": json.dumps(redrive),
        },
    )
    return QueuePair(queue_["QueueUrl"], dead["QueueUrl"])
