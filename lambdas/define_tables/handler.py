"""Creates and changes the tables that are deployed with the instance."""

from collections.abc import Mapping
from typing import Any

from sleeper.aws import deployment


def handler(event: Mapping[str, Any], _context: object) -> None:
    """Handles a custom resource of CloudFormation."""
    deployment.define_tables(event)
