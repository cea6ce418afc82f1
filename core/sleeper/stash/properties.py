# ruff: noqa: E501 (one declaration a line reads as a table)
"""Declarations of the properties of stashes."""

from sleeper.properties.deployed import DeployedBucket
from sleeper.properties.instance import declare
from sleeper.properties.table import inherit
from sleeper.properties.value_kind import byte_count, optional, pattern, whole_number

_GROUP = "Stash"
_BUCKET = pattern("[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", "the name of a bucket, without s3://")
# The maximum of an alarm of CloudWatch.
_ALARM_HOURS = whole_number(0, 7 * 24)

# fmt: off
STASH_HOLD_MINUTES = declare("stash.hold.minutes", whole_number(1, 30 * 24 * 60), 360, _GROUP, "The time for which the versions that a stash copies stay readable after its processes died, so that it can be recovered.")
STASH_HOURS_MAX = declare("stash.timeout.hours", whole_number(1, 30 * 24), 24, _GROUP, "The time after which a stash that workers make fails if it is not complete.")
STASH_SPARK_BYTES = declare("stash.spark.bytes.min", byte_count(0), 0, _GROUP, "The smallest size of a table's data files for which one Spark job writes the table of a submitted stash. 0: never. On AWS, EMR Serverless runs the job; an instance without it uses tasks for all tables.")
STASH_BUCKET = declare("stash.bucket", optional(_BUCKET), None, _GROUP, "The bucket that stash tasks on AWS write to, in the same account. Default: the deployment creates one.", redeploy=True)
STASH_PERIOD_MINUTES = declare("stash.period.minutes", whole_number(1, 60), 1, _GROUP, "The period in which due stashes are started on AWS, tasks are started for them, and stashes are completed.", redeploy=True)
STASH_TASKS_MAX = declare("stash.max.concurrent.tasks", whole_number(0, 10_000), 10, _GROUP, "The maximum number of concurrent stash tasks on AWS.")
STASH_TASK_CPU = declare("stash.task.cpu", whole_number(256, 16_384), 2048, _GROUP, "CPU units of a stash task.", redeploy=True)
STASH_TASK_MEMORY_MB = declare("stash.task.memory.mb", whole_number(512, 122_880), 4096, _GROUP, "The memory of a stash task, in MiB.", redeploy=True)
STASH_ALARM_HOURS = declare("stash.alarm.hours", _ALARM_HOURS, 0, _GROUP, "On AWS, the number of hours without a completed stash that raises an alarm. 0: no alarm.", redeploy=True)
STASH_PIECE_BYTES = inherit("stash.piece.bytes", byte_count(1024), 128 * 1024**2, _GROUP, "The approximate size of the data files that become one file of a stash. Smaller leaves are a file each, larger ones are divided.")
STASHES = DeployedBucket("stashes", "stash", STASH_BUCKET, lasting=True)
# fmt: on
