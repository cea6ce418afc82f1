"""Removes the remains of deleted tables and of failed table creations."""

from sleeper.garbage_collection.service import finish_deletions, sweep_abandoned
from sleeper.instance import Instance
from sleeper.workers.lambda_function import Event, lambda_function


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, int]:  # noqa: ARG001 (the event has no content)
    """After an error, the rule retries; removals before the error are permanent."""
    return {"abandoned": sweep_abandoned(instance), "deleted": finish_deletions(instance)}
