"""An instance whose process ends just before or after a call of one of its ports."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sleeper.instance import Instance
from tests.ports import with_ports

_CALLS = {
    "state": {"commit", "commit_or_raise"},
    "jobs": {"record"},
    "queue": {"send", "receive", "delete", "release"},
    "tables": {"create", "replace", "remove"},
    "table_properties": {"write", "change"},
    "root": {"delete", "sync"},
}


class Crash(BaseException):
    """The process died here."""


@dataclass
class CrashPlan:
    """Ends the process at a numbered call; every later call of a port fails too."""

    left: int | None = None
    is_dead: bool = False
    where: str = ""
    sent: list[tuple[str, str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def point(self, where: str) -> None:
        with self._lock:
            if self.is_dead:
                raise Crash(self.where)
            if self.left is None:
                return
            self.left -= 1
            if self.left <= 0:
                self.left, self.is_dead, self.where = None, True, where
                raise Crash(where)


def make_crashing(instance: Instance, plan: CrashPlan) -> Instance:
    """The instance with every port that changes something behind the plan."""

    def call(name: str, action: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **keywords: Any) -> Any:
            plan.point(f"before {name}")
            result = action(*args, **keywords)
            plan.point(f"after {name}")
            return result

        return called

    def queue(name: Any) -> Any:
        port = _Port("queue", instance.jobs.queue(name), call)
        send = port.send

        def send_and_record(body: str, *args: Any, **keywords: Any) -> Any:
            plan.sent.append((name.value, body))
            return send(body, *args, **keywords)

        port.send = send_and_record
        return port

    return with_ports(
        instance,
        jobs={"tracker": _Port("jobs", instance.jobs.tracker, call), "queue": queue},
        storage={"root": _Root(instance.storage.root, call, plan)},
        tables={
            "index": _Port("tables", instance.tables.index, call),
            "properties": _Port("table_properties", instance.tables.properties, call),
            "state": lambda table_id: _Port("state", instance.tables.state(table_id), call),
            "create": call("create table", instance.tables.create),
            "install": call("install state", instance.tables.install),
            "delete": call("delete table", instance.tables.delete),
        },
    )


class _Port:
    def __init__(self, kind: str, port: Any, call: Any) -> None:
        self._port = port
        for name in _CALLS[kind]:
            if hasattr(port, name):
                setattr(self, name, call(f"{kind}.{name}", getattr(port, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


class _Root(_Port):
    def __init__(self, root: Any, call: Any, plan: CrashPlan) -> None:
        super().__init__("root", root, call)
        self._plan = plan

    @contextmanager
    def sink(self, path: str, syncs: bool = True) -> Iterator[Any]:
        self._plan.point("before root.sink")
        with self._port.sink(path, syncs) as file:
            self._plan.point("inside root.sink")
            yield file
        if not self._plan.is_dead:  # the dead do close their files
            self._plan.point("after root.sink")
