"""Creates ingest jobs from files that are pending in the ingest batcher."""

import logging

from sleeper.ingest_batcher.service import create_all_ingest_batches
from sleeper.instance import Instance
from sleeper.workers.lambda_function import Event, lambda_function

logger = logging.getLogger(__name__)


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, int]:  # noqa: ARG001 (the event has no content)
    """Handles all tables. A failed table does not affect others, and is retried soon."""
    sent, problems = create_all_ingest_batches(instance)
    for problem in problems:
        logger.error("files wait: %s", problem)
    return {"jobs": sent, "problems": len(problems)}
