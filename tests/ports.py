"""Instances with some of their ports replaced by fakes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sleeper.instance import Instance


def with_ports(instance: Instance, **groups: Mapping[str, Any]) -> Instance:
    """Returns the instance with other ports, such as `jobs={"queue": open_queue}`."""
    changed: dict[str, Any] = {
        group: replace(getattr(instance, group), **ports) for group, ports in groups.items()
    }
    return replace(instance, **changed)
