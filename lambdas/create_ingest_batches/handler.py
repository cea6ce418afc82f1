"""Makes ingest jobs of the files that wait for the batcher."""

import logging

from sleeper.ingest_batcher.service import create_all_ingest_batches
from sleeper.instance import Instance
from sleeper.workers.lambda_function import Event, lambda_function

logger = logging.getLogger(__name__)


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, int]:  # noqa: ARG001 (only that it came)
    """For all tables; one that fails does not keep the others, and has its next try soon."""
    sent, problems = create_all_ingest_batches(instance)
    for problem in problems:
        logger.error("files wait: %s", problem)
    return {"jobs": sent, "problems": len(problems)}
