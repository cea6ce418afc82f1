"""The calls that a local instance's ports can make, for the coverage of faults."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from simulation.local.ports import LOCAL_METHODS
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.local.holds import SharedHolds
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.statestore.store import StateStore
from sleeper.systems import systems


def list_calls() -> list[str]:
    """Returns the names of all calls of all ports, such as `state.commit`."""
    with TemporaryDirectory() as parent:
        folder = Path(parent) / "instance"
        create_local_instance(folder, "listed", {})
        instance = open_local_instance(folder)
        try:
            return sorted(
                f"{name}.{method}"
                for name, port in _ports(instance).items()
                for method in dir(port)
                if method[0] != "_" and method not in LOCAL_METHODS and _is_method(port, method)
            )
        finally:
            instance.close()


def _is_method(port: Any, method: str) -> bool:
    return callable(getattr(type(port) if not isinstance(port, type) else port, method, None))


def _ports(instance: Instance) -> dict[str, Any]:
    jobs = instance.jobs
    queue = next(iter(jobs.queues))
    ports: dict[str, Any] = {
        "index": instance.tables.index,
        "properties": instance.tables.properties,
        "state": StateStore,
        "holds": SharedHolds,
        "tracker": jobs.tracker,
        "tasks": jobs.tasks,
        "queue": jobs.queue(queue),
        "dead": jobs.dead_letters(queue),
        "requests": jobs.file_requests(),
        "root": instance.storage.root,
        "queries": instance.queries.tracker(),
    }
    for each in systems():
        with suppress(InvalidRequestError):  # no port
            ports[each.name] = instance.systems.get(each.name)
    return ports
