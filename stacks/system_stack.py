# ruff: noqa: ARG003 (the hooks of this class are defaults)
"""The stacks of systems, as general stacks see them: a stack of a system overrides the hooks."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import aws_cdk as cdk
from constructs import Construct

from sleeper.properties.deployed import DeployedBucket
from sleeper.system import Stack
from sleeper.systems import load, systems
from stacks.constructs.metric import Chart
from stacks.constructs.permissions import Permission
from stacks.context import StackContext
from stacks.deployment import Deployment


class SystemStack(cdk.NestedStack):
    """A nested stack of a system. Its `system.py` declares the stack with a `sleeper.system.Stack`.

    General stacks that are created before it read its attributes and call its class methods.
    """

    buckets: ClassVar[Sequence[DeployedBucket]] = ()
    """The buckets that it can create."""
    ingest_queue: ClassVar[str | None] = None
    """The key of its queue of ingest jobs."""
    follows_logs: ClassVar[bool] = False
    """Whether it reads the stream of the table of logs."""
    table_folders: ClassVar[Sequence[str]] = ()
    """The folders of its own in the folders of tables, which go with deleted tables."""
    needs_endpoints: ClassVar[bool] = False
    """Whether its machines need the interface endpoints of a created network."""
    network_tags: ClassVar[Sequence[tuple[str, str]]] = ()
    """The tags of the network that it needs."""
    starts_tasks: ClassVar[bool] = False
    """Whether its creation starts tasks, which read the properties and tables of the instance."""

    def __init__(self, scope: Construct, construct_id: str, context: StackContext) -> None:
        super().__init__(scope, construct_id)
        self.create(context)

    @abstractmethod
    def create(self, context: StackContext) -> None:
        """Creates the resources, after those of the general stacks and of earlier systems."""

    @classmethod
    def reads_secrets(cls, deployment: Deployment) -> bool:
        """Returns whether its tasks read secrets in a created network."""
        return False

    @classmethod
    def administer(cls, deployment: Deployment) -> Sequence[Permission]:
        """Returns the permissions of the role of administration."""
        return ()

    @classmethod
    def report(cls, deployment: Deployment) -> Sequence[Permission]:
        """Returns the permissions of reports."""
        return ()

    @classmethod
    def run_with_spark(cls, deployment: Deployment) -> Sequence[Permission]:
        """Returns the permissions of its runs on the Spark platform."""
        return ()

    @classmethod
    def make_charts(cls, deployment: Deployment) -> Sequence[Chart]:
        """Returns its charts on the dashboard. A single one stands beside those of tasks."""
        return ()


def all_stacks() -> Iterator[type[SystemStack]]:
    """Yields the stacks of all systems."""
    for system in systems():
        for declared in system.stacks:
            yield load(declared.source)


def chosen_declarations(deployment: Deployment) -> list[Stack]:
    """Returns the stacks of systems that the properties choose, in the order of creation."""
    return [
        declared
        for system in systems()
        for declared in system.stacks
        if any(map(deployment.has, [declared.option] if declared.option else system.options))
    ]


def chosen_stacks(deployment: Deployment) -> list[type[SystemStack]]:
    """Returns the classes of these stacks."""
    return [load(declared.source) for declared in chosen_declarations(deployment)]
