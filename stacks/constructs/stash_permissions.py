"""IAM statements for stashes: their records in the data bucket, and the bucket of stashes."""

from aws_cdk import Aws

from sleeper.properties.deployed import STASHES, TABLE_DATA
from sleeper.properties.deployment import STASH_BUCKET
from sleeper.properties.instance import OptionalStack
from stacks.constructs.permissions import DATA, Permission, objects_in, read_objects
from stacks.deployment import Deployment

_EACH_STASH = "a folder for each stash"


def advance_stashes(of: Deployment) -> list[Permission]:
    """Allows starting, completing and pruning stashes, and their records."""
    return [
        *_use_stash_records(of),
        *write_stashes(of),
        Permission(("s3:DeleteObject",), [f"{_stash_bucket_arn(of)}/*"], _EACH_STASH),
    ]


def run_stash_tasks(of: Deployment) -> list[Permission]:
    """Allows writing the files of stashes, and recording the results of tasks."""
    return [
        Permission(("s3:GetObject", "s3:PutObject"), _stash_records(of), _EACH_STASH),
        *write_stashes(of),
    ]


def write_stashes_with_spark(of: Deployment) -> list[Permission]:
    """Allows Spark to write large tables of stashes, if the instance makes stashes."""
    if not of.has(OptionalStack.STASH):
        return []
    return [*run_stash_tasks(of), read_objects(of, DATA)]


def administer_stashes(of: Deployment) -> list[Permission]:
    """Allows the commands that start, schedule, cancel and prune stashes."""
    return advance_stashes(of)


def write_stashes(of: Deployment) -> list[Permission]:
    """Allows reading and writing stashes."""
    arn = _stash_bucket_arn(of)
    actions = ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")
    return [
        Permission(("s3:ListBucket",), [arn]),
        Permission(actions, [f"{arn}/*"], _EACH_STASH),
    ]


def _use_stash_records(of: Deployment) -> list[Permission]:
    actions = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject")
    return [
        Permission(("s3:ListBucket",), [of.bucket_arn(TABLE_DATA)]),
        Permission(actions, _stash_records(of), _EACH_STASH),
    ]


def _stash_records(of: Deployment) -> list[str]:
    return objects_in(of, TABLE_DATA, "stashes/*")


def _stash_bucket_arn(of: Deployment) -> str:
    given = of.get(STASH_BUCKET)
    return of.bucket_arn(STASHES) if given is None else f"arn:{Aws.PARTITION}:s3:::{given}"
