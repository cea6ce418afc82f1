"""Removes what is left of tables that were deleted, or whose creation died."""

from sleeper.garbage_collection.service import finish_deletions, sweep_abandoned
from sleeper.instance import Instance
from sleeper.workers.lambda_function import Event, lambda_function


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, int]:  # noqa: ARG001 (only that it came)
    """An error tells the rule to try again; what was removed until then stays so."""
    return {"abandoned": sweep_abandoned(instance), "deleted": finish_deletions(instance)}
