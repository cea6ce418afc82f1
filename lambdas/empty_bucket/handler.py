"""Empties a bucket that is deleted with its stack."""

from collections.abc import Mapping
from typing import Any

from sleeper.aws import stack_deletion


def handler(event: Mapping[str, Any], _context: object) -> None:
    """Handles a custom resource of CloudFormation."""
    stack_deletion.empty_deleted_bucket(event)
