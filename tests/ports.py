"""Instances with some of their ports replaced by fakes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sleeper.instance import Instance
from sleeper.system_ports import SystemPorts


def with_system_port(instance: Instance, name: str, port: Any) -> Instance:
    """Returns the instance with another port of a system."""
    ports = SystemPorts({name: "builtins:object"}, lambda _: port)
    return replace(instance, systems=ports)


def with_ports(instance: Instance, **groups: Mapping[str, Any]) -> Instance:
    """Returns the instance with other ports, such as `jobs={"queue": open_queue}`."""
    changed: dict[str, Any] = {
        group: replace(getattr(instance, group), **ports) for group, ports in groups.items()
    }
    return replace(instance, **changed)
