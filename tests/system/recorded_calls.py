"""What roles did in emulators, and what their policies allow them, by role.

The file is that of `tests/servers/ministack_recorder.py`. Names of instances are left out of names
of resources, so that those of all tests count together: `table/transaction-log`.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.infra.roles import role_name
from tests.servers.ministack import ACCOUNT

Permitted = tuple[str, str]
"""An action, and a pattern of resources; or an action on a resource."""

_NESTED = re.compile(r"(\w+?)NestedStack")
_OF_INSTANCE = re.compile(
    r"^arn:aws:[a-z0-9-]+:[^:]*:[^:]*:(.*?)sleeper-(?:sys[.-]test|[^-/:]+)-", re.I
)


@dataclass(slots=True)
class RecordedRole:
    """`used` are those of the `granted` that allowed a call, and `refused` are calls."""

    granted: set[Permitted] = field(default_factory=set)
    used: set[Permitted] = field(default_factory=set)
    refused: set[Permitted] = field(default_factory=set)

    @property
    def unused(self) -> set[Permitted]:
        """What is granted and allowed no call."""
        return self.granted - self.used


def read_recorded(files: Iterable[Path]) -> dict[str, RecordedRole]:
    """Returns the roles of all templates that were deployed, by name."""
    roles: defaultdict[str, RecordedRole] = defaultdict(RecordedRole)
    for file in files:
        facts = [json.loads(line) for line in file.read_text().splitlines()]
        names = {each["role"]: _role_name(*each["made"]) for each in facts if "made" in each}
        for name in names.values():
            roles.setdefault(name, RecordedRole())
        for fact in facts:
            for kind in ("granted", "used", "refused"):
                if kind in fact:
                    action, resource = fact[kind]
                    getattr(roles[names[fact["role"]]], kind).add((action, _short(resource)))
    return dict(roles)


def _role_name(stack: str, logical_id: str) -> str:
    match = _NESTED.search(stack)
    return role_name(match[1] if match else stack, logical_id)


def _short(resource: str) -> str:
    return _OF_INSTANCE.sub(r"\1", resource).replace(f"-{ACCOUNT}", "")
