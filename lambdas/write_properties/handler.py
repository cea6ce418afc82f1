"""Writes the instance properties of a deployment."""

from collections.abc import Mapping
from typing import Any

from sleeper.aws import deployment


def handler(event: Mapping[str, Any], _context: object) -> None:
    """Handles a custom resource of CloudFormation."""
    deployment.write_properties(event)
