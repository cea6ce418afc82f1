"""Stops tasks, jobs and clusters before what they use is deleted."""

from collections.abc import Mapping
from typing import Any

from sleeper.aws import stack_deletion


def handler(event: Mapping[str, Any], _context: object) -> None:
    """Handles a custom resource of CloudFormation."""
    stack_deletion.stop_deleted_machines(event)
