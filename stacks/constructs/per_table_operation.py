"""A scheduled operation on each table: rule → fan-out → FIFO queue → handler."""

from collections.abc import Sequence
from dataclasses import dataclass

from constructs import Construct

from sleeper.properties.instance import QUEUE_RECEIVES_MAX
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.permissions import Permission, count, list_tables, read_properties, send
from stacks.constructs.receiver import Receiver, make_receiver
from stacks.constructs.schedule import start_every
from stacks.constructs.state_permissions import read_state
from stacks.deployment import Deployment

_FAN_OUT = "fan_out_tables"
# A failed table is retried after 5 s, then with doubled delays up to 5 minutes. Its message becomes
# a dead letter after 20 minutes.
_RECEIVES_MIN = 10
# A thousand tables arrive at once, and must not exhaust the account's concurrency.
_AT_ONCE_MAX = 10
# Less often, an operation may be some minutes late.
_ON_DEMAND_MINUTES = 15


@dataclass(frozen=True, slots=True)
class Operation:
    """`queue` is the key of the FIFO queue, whose messages are table ids for the handler."""

    queue: str
    handler: str
    every_minutes: int
    permissions: Sequence[Permission]
    size: Size = Size()  # noqa: RUF009 (frozen)


class PerTableOperation(Construct):
    """Creates one operation. The FIFO queue prevents two concurrent runs for one table."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        operation: Operation,
    ) -> None:
        super().__init__(scope, construct_id)
        make_receiver(
            self,
            "Handler",
            deployment,
            Receiver(
                queue=operation.queue,
                code=FunctionCode(operation.handler),
                permissions=[*read_state(deployment), *operation.permissions],
                size=operation.size,
                receives_max=max(_RECEIVES_MIN, deployment.get(QUEUE_RECEIVES_MAX)),
                at_once_max=_AT_ONCE_MAX,
                # A table that kills the function must not fail other tables.
                batch=1,
                on_demand=operation.every_minutes >= _ON_DEMAND_MINUTES,
            ),
        )
        stem = operation.queue.replace("_", "-")
        fan_out = make_function(
            self,
            "FanOut",
            deployment,
            FunctionCode(_FAN_OUT, environment={"SLEEPER_OPERATION": operation.queue}),
            permissions=[
                *read_properties(deployment),
                list_tables(deployment),
                send(deployment, operation.queue),
                count(deployment, operation.queue),
            ],
            name=f"fan-out-{stem}",
            size=Size(keeps_state=False),
        )
        start_every(fan_out, deployment, operation.every_minutes, stem)
