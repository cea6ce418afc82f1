"""Ports of an instance whose calls are calls of the simulated world.

The names of calls are those of the ports, so that a history reads the same for every kind of
instance. A fault is an UnavailableError, which every port may raise: before an effect, as a full
disk or a locked file does, and after one, as a failed checkpoint or a lost response does.
"""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from simulation.calls import Call, Calls, Fault
from sleeper.errors import UnavailableError
from sleeper.instance import Instance
from sleeper.system_ports import SystemPorts
from sleeper.systems import systems
from sleeper.tables import TableId

LOCAL_METHODS = {"url_of", "buckets", "check_writable", "check_path", "message_bytes_max"}
"""Methods that are no calls: the merge uses them for each file, and others see nothing of them."""


def with_simulated_ports(instance: Instance, calls: Calls) -> Instance:
    """Returns the instance with its ports behind the calls."""

    def state(table_id: TableId) -> Any:
        store = tables.state(table_id)
        if not isinstance(store._holds, _Port):
            # Threads of the store write holds too.
            store._holds = port("holds", store._holds)
        return _Port("state", store, calls, table_id)

    def port(name: str, target: Any) -> Any:
        return _Port(name, target, calls)

    def function(name: str, target: Callable[..., Any]) -> Callable[..., Any]:
        return _call(name, "", target, calls)

    tables, jobs, storage = instance.tables, instance.jobs, instance.storage
    return replace(
        instance,
        tables=replace(
            tables,
            index=port("index", tables.index),
            properties=port("properties", tables.properties),
            state=state,
            create=function("tables.create", tables.create),
            install=function("tables.install", tables.install),
            delete=function("tables.delete", tables.delete),
        ),
        jobs=replace(
            jobs,
            tracker=port("tracker", jobs.tracker),
            tasks=port("tasks", jobs.tasks),
            queue=lambda name: _Port("queue", jobs.queue(name), calls, name.value),
            dead_letters=lambda name: _Port("dead", jobs.dead_letters(name), calls, name.value),
            file_requests=lambda: port("requests", jobs.file_requests()),
        ),
        storage=replace(storage, root=port("root", storage.root)),
        queries=replace(
            instance.queries, tracker=lambda: port("queries", instance.queries.tracker())
        ),
        systems=_Systems(instance.systems, calls),
    )


class _Systems(SystemPorts):
    """The ports of systems, each behind the calls."""

    def __init__(self, ports: SystemPorts, calls: Calls) -> None:
        self._ports_of_systems = ports
        self._calls = calls
        super().__init__({each.name: "" for each in systems()}, lambda _: ports)

    def get(self, name: str) -> Any:
        return _Port(name, self._ports_of_systems.get(name), self._calls)

    def vacuum(self) -> bool:
        return self._ports_of_systems.vacuum()

    def close(self) -> None:
        self._ports_of_systems.close()


class _Port:
    """A port whose methods are calls. Other attributes are those of the port itself."""

    def __init__(self, name: str, port: Any, calls: Calls, target: str = "") -> None:
        self._simulated = name, port, calls, target

    def __getattr__(self, attribute: str) -> Any:
        name, port, calls, target = self._simulated
        value = getattr(port, attribute)
        if attribute[0] == "_" or attribute in LOCAL_METHODS or not callable(value):
            return value
        call = _call(f"{name}.{attribute}", target, value, calls)
        self.__dict__[attribute] = call
        return call


def _call(name: str, target: str, function: Callable[..., Any], calls: Calls) -> Callable[..., Any]:
    service, _, operation = name.partition(".")

    def error(fault: Fault) -> Exception:
        return UnavailableError(f"simulated: {name} {fault}")

    @functools.wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:
        call = Call(service, operation, target or _describe(arguments))
        return calls(call, lambda: function(*arguments, **keywords), error)

    return called


def _describe(arguments: tuple[Any, ...]) -> str:
    """Returns what the first argument names, if it is a name."""
    first = arguments[0] if arguments else ""
    return first if isinstance(first, str) else ""
