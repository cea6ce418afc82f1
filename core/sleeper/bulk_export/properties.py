# ruff: noqa: E501 (one declaration a line reads as a table)
"""Declarations of the properties of bulk exports."""

from sleeper.properties.deployed import DeployedBucket, declare_address
from sleeper.properties.instance import declare
from sleeper.properties.value_kind import whole_number

_GROUP = "Bulk export"

# fmt: off
EXPORT_TASKS_MAX = declare("bulk.export.max.concurrent.tasks", whole_number(0, 10_000), 10, _GROUP, "The maximum number of concurrent bulk export tasks on AWS.")
EXPORT_TASK_CPU = declare("bulk.export.task.cpu", whole_number(256, 16_384), 4096, _GROUP, "CPU units of a bulk export task.", redeploy=True)
EXPORT_TASK_MEMORY_MB = declare("bulk.export.task.memory.mb", whole_number(512, 122_880), 8192, _GROUP, "The memory of a bulk export task, in MiB.", redeploy=True)
BULK_EXPORT_BUCKET = declare_address("bulk.export.results.bucket", "The bucket of bulk exports' results.")
BULK_EXPORT_S3_BUCKET = declare_address("bulk.export.s3.bucket", "The same bucket, under the name that clients of gchq/sleeper look for.")
BULK_EXPORT_RESULTS = DeployedBucket("bulk-export-results", "export", BULK_EXPORT_BUCKET)
# fmt: on
