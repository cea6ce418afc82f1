"""IAM statements for stashes: their records in the data bucket, and the bucket of stashes."""

from aws_cdk import Aws

from sleeper.properties.deployed import TABLE_DATA
from sleeper.stash.properties import STACK as STASH_STACK
from sleeper.stash.properties import STASH_BUCKET, STASHES
from stacks.constructs.permissions import DATA, Permission, objects_in, read_objects
from stacks.deployment import Deployment

_EACH_STASH = "a folder for each stash"


def advance_stashes(deployment: Deployment) -> list[Permission]:
    """Allows starting, completing and pruning stashes, and their records."""
    return [
        *_use_stash_records(deployment),
        *write_stashes(deployment),
        Permission(("s3:DeleteObject",), [f"{_stash_bucket_arn(deployment)}/*"], _EACH_STASH),
    ]


def run_stash_tasks(deployment: Deployment) -> list[Permission]:
    """Allows writing the files of stashes, and recording the results of tasks."""
    return [
        Permission(("s3:GetObject", "s3:PutObject"), _stash_records(deployment), _EACH_STASH),
        *write_stashes(deployment),
    ]


def write_stashes_with_spark(deployment: Deployment) -> list[Permission]:
    """Allows Spark to write large tables of stashes, if the instance makes stashes."""
    if not deployment.has(STASH_STACK):
        return []
    return [*run_stash_tasks(deployment), read_objects(deployment, DATA)]


def administer_stashes(deployment: Deployment) -> list[Permission]:
    """Allows the commands that start, schedule, cancel and prune stashes."""
    return advance_stashes(deployment)


def write_stashes(deployment: Deployment) -> list[Permission]:
    """Allows reading and writing stashes."""
    arn = _stash_bucket_arn(deployment)
    actions = ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")
    return [
        Permission(("s3:ListBucket",), [arn]),
        Permission(actions, [f"{arn}/*"], _EACH_STASH),
    ]


def _use_stash_records(deployment: Deployment) -> list[Permission]:
    actions = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject")
    return [
        Permission(("s3:ListBucket",), [deployment.bucket_arn(TABLE_DATA)]),
        Permission(actions, _stash_records(deployment), _EACH_STASH),
    ]


def _stash_records(deployment: Deployment) -> list[str]:
    return objects_in(deployment, TABLE_DATA, "stashes/*")


def _stash_bucket_arn(deployment: Deployment) -> str:
    given = deployment.get(STASH_BUCKET)
    return deployment.bucket_arn(STASHES) if given is None else f"arn:{Aws.PARTITION}:s3:::{given}"
