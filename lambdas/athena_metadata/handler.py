"""Tells Athena of tables and columns, and of the splits of its queries."""

from typing import Any

from sleeper.athena.service import answer_athena
from sleeper.instance import Instance
from sleeper.workers.lambda_function import Event, lambda_function


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, Any]:
    """Answers a request of Athena's protocol. What is refused is raised, and Athena shows it."""
    return answer_athena(instance, event)
