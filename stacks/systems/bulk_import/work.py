"""The bucket of messages and runs, which the platforms of bulk imports share."""

from sleeper.properties.deployed import BULK_IMPORT
from stacks.constructs.bucket import make_bucket
from stacks.context import StackContext
from stacks.system_stack import SystemStack

_WORK_DAYS = 7


class BulkImportStack(SystemStack):
    """Objects expire after a week, which is longer than any job."""

    buckets = (BULK_IMPORT,)

    def create(self, context: StackContext) -> None:
        deployment, emptier = context.deployment, context.emptier
        make_bucket(self, "Work", deployment, BULK_IMPORT, emptier=emptier, expires_days=_WORK_DAYS)
