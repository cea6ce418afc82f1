"""Reads the splits of Athena's queries."""

from typing import Any

from sleeper.athena.service import answer_athena
from sleeper.instance import Instance
from sleeper.workers.lambda_function import Event, lambda_function


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, Any]:
    """Handles a request for rows. A refusal is an error that Athena shows."""
    return answer_athena(instance, event)
