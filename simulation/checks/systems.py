"""The checks of all systems: what each derived equals the tables, and what work is left."""

from collections.abc import Callable, Iterator, Sequence

from simulation.checks import (
    adapters,
    adjunct_stores,
    export_queues,
    iceberg,
    queues,
    stashes,
    status,
)
from simulation.checks.look import Look
from sleeper.instance import Instance

CHECKS: Sequence[Callable[[Look], None]] = (
    queues.check_queues,
    export_queues.check_queues,
    stashes.check_stashes,
    adapters.check_adapters,
    adjunct_stores.check_stores,
    iceberg.check_published,
    status.check_status,
)
_WORK: Sequence[Callable[[Instance], Iterator[str]]] = (
    queues.describe_work,
    export_queues.describe_work,
    stashes.describe_work,
)


def check_systems(look: Look) -> None:
    """Applies the rules of all systems."""
    for check in CHECKS:
        check(look)


def describe_work(instance: Instance) -> Iterator[str]:
    """Yields what work of systems is left."""
    for describe in _WORK:
        yield from describe(instance)
