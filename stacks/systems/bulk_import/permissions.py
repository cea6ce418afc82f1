"""IAM statements for bulk imports: their work, and their messages and runs."""

from sleeper.jobs.spark_platform import PlatformName
from sleeper.properties.deployed import BULK_IMPORT
from stacks.constructs.permissions import DATA, Permission, read_sources, run_task, write_objects
from stacks.constructs.state_permissions import commit, read_state
from stacks.deployment import Deployment

_EACH_JOB = "an object for each job"


def import_in_bulk(deployment: Deployment) -> list[Permission]:
    """Allows the work of a bulk import's driver and executors."""
    jobs = f"{deployment.bucket_arn(BULK_IMPORT)}/jobs/*"
    return [
        *read_state(deployment),
        *commit(deployment),
        *run_task(deployment),
        *read_sources(deployment),
        write_objects(deployment, DATA),
        Permission(("s3:GetObject",), [jobs], _EACH_JOB),
    ]


def keep_runs(deployment: Deployment, platform: PlatformName) -> list[Permission]:
    """Returns permissions to store messages for drivers, and accepted runs."""
    bucket = deployment.bucket_arn(BULK_IMPORT)
    runs = f"{bucket}/runs/{platform.value}/*"
    return [
        # Without it, S3 reports a missing object as forbidden.
        Permission(("s3:ListBucket",), [bucket]),
        Permission(("s3:PutObject",), [f"{bucket}/jobs/*"], _EACH_JOB),
        Permission(("s3:GetObject", "s3:PutObject"), [runs], _EACH_JOB),
    ]


def end_runs(deployment: Deployment, platform: PlatformName) -> list[Permission]:
    """Returns permissions to read accepted runs, and to delete those that ended."""
    bucket = deployment.bucket_arn(BULK_IMPORT)
    runs = f"{bucket}/runs/{platform.value}/*"
    return [
        Permission(("s3:ListBucket",), [bucket]),
        Permission(("s3:GetObject", "s3:DeleteObject"), [runs], _EACH_JOB),
    ]
