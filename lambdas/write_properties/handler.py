"""Writes the instance's properties as they are deployed."""

from collections.abc import Mapping
from typing import Any

from sleeper.aws import deployment


def handler(event: Mapping[str, Any], _context: object) -> None:
    """Answers a custom resource of CloudFormation."""
    deployment.write_properties(event)
