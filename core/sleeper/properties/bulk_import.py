# ruff: noqa: E501 (one declaration a line reads as a table)
"""Declarations of instance properties of bulk import's platforms: clusters, and Spark's settings.

Names are those of gchq/sleeper where it has one. Spark's are defaults, which a message's
`sparkConf` overrides, and the sizes of a cluster made for a job those of its `platformSpec`.
"""

from typing import Any

from sleeper.properties.declaration import Group, Property
from sleeper.properties.instance import declare
from sleeper.properties.value_kind import STRING_LIST, pattern, whole_number

_MEMORY = pattern("[1-9][0-9]{0,4}[gG]", "gibibytes, such as 16G")
_RELEASE = pattern(r"emr-[0-9]+\.[0-9]+\.[0-9]+", "a release of EMR, such as emr-7.9.0")
_MARKET = pattern("SPOT|ON_DEMAND", "SPOT or ON_DEMAND")
_ARCHITECTURE = pattern("ARM64|X86_64", "ARM64 or X86_64")
_INSTANCES = whole_number(1, 10_000)
_CORES = whole_number(1, 128)

# fmt: off
EMR_RELEASE = declare("bulk.import.emr.release.label", _RELEASE, "emr-7.9.0", Group.BULK_IMPORT, "The release of EMR, and of EMR Serverless, for bulk imports, and the base of their image.", redeploy=True)
ARCHITECTURE = declare("bulk.import.cpu.architecture", _ARCHITECTURE, "ARM64", Group.BULK_IMPORT, "The CPU architecture of bulk imports on all platforms. Instance types must match it.", redeploy=True)
WATCH_PERIOD_MINUTES = declare("bulk.import.watch.period.minutes", whole_number(1), 5, Group.BULK_IMPORT, "The period in which the state of bulk imports on a platform is polled.", redeploy=True)

SERVERLESS_EXECUTOR_CORES = declare("bulk.import.emr.serverless.spark.executor.cores", _CORES, 4, Group.BULK_IMPORT, "Processors of an executor on EMR Serverless: 1, 2, 4, 8 or 16.")
SERVERLESS_EXECUTOR_MEMORY = declare("bulk.import.emr.serverless.spark.executor.memory", _MEMORY, "8G", Group.BULK_IMPORT, "Memory of an executor's JVM on EMR Serverless. The memory of its tasks is added.")
SERVERLESS_EXECUTOR_DISK = declare("bulk.import.emr.serverless.spark.emr-serverless.executor.disk", _MEMORY, "200G", Group.BULK_IMPORT, "Disk of an executor on EMR Serverless, for shuffles and sorts.")
SERVERLESS_EXECUTORS = declare("bulk.import.emr.serverless.spark.executor.instances", _INSTANCES, 36, Group.BULK_IMPORT, "The maximum number of executors of a job on EMR Serverless.")
SERVERLESS_DRIVER_CORES = declare("bulk.import.emr.serverless.spark.driver.cores", _CORES, 4, Group.BULK_IMPORT, "Processors of the driver on EMR Serverless.")
SERVERLESS_DRIVER_MEMORY = declare("bulk.import.emr.serverless.spark.driver.memory", _MEMORY, "8G", Group.BULK_IMPORT, "Memory of the driver's JVM on EMR Serverless.")
SERVERLESS_STOP_MINUTES = declare("bulk.import.emr.serverless.autostop.timeout", whole_number(1, 10_080), 15, Group.BULK_IMPORT, "The idle minutes after which EMR Serverless stops and incurs no cost.", redeploy=True)
SERVERLESS_CORES_MAX = declare("bulk.import.emr.serverless.max.vcpus", _INSTANCES, 400, Group.BULK_IMPORT, "The maximum number of processors of all jobs on EMR Serverless. Further jobs wait.", redeploy=True)

EXECUTOR_CORES = declare("bulk.import.emr.spark.executor.cores", _CORES, 4, Group.BULK_IMPORT, "Processors of an executor on EMR and EKS.")
EXECUTOR_MEMORY = declare("bulk.import.emr.spark.executor.memory", _MEMORY, "8G", Group.BULK_IMPORT, "Memory of an executor's JVM on EMR and EKS. The memory of its tasks is added.")
EXECUTORS = declare("bulk.import.emr.spark.executor.instances", _INSTANCES, 36, Group.BULK_IMPORT, "The maximum number of executors of a job on EMR and EKS.")
DRIVER_CORES = declare("bulk.import.emr.spark.driver.cores", _CORES, 2, Group.BULK_IMPORT, "Processors of the driver on EMR and EKS.")
DRIVER_MEMORY = declare("bulk.import.emr.spark.driver.memory", _MEMORY, "8G", Group.BULK_IMPORT, "Memory of the driver's JVM on EMR and EKS.")

EMR_MAIN_TYPES = declare("bulk.import.emr.master.instance.types", STRING_LIST, ("m7g.xlarge", "m6g.xlarge"), Group.BULK_IMPORT, "The instance types of a cluster's main node on EMR.")
EMR_EXECUTOR_TYPES = declare("bulk.import.emr.executor.instance.types", STRING_LIST, ("m7g.4xlarge", "m6g.4xlarge"), Group.BULK_IMPORT, "The instance types of a cluster's other nodes on EMR.")
EMR_MARKET = declare("bulk.import.emr.executor.market.type", _MARKET, "SPOT", Group.BULK_IMPORT, "The market of the other nodes of a cluster created for a job. Spot nodes that are unavailable for ten minutes are replaced by on-demand nodes.")
EMR_INITIAL_CAPACITY = declare("bulk.import.emr.executor.initial.capacity", _INSTANCES, 2, Group.BULK_IMPORT, "The initial number of other nodes of a cluster created for a job.")
EMR_CAPACITY_MAX = declare("bulk.import.emr.executor.max.capacity", _INSTANCES, 10, Group.BULK_IMPORT, "The maximum number of other nodes of a cluster created for a job.")

PERSISTENT_CAPACITY_MIN = declare("bulk.import.persistent.emr.min.capacity", _INSTANCES, 1, Group.BULK_IMPORT, "The minimum number of other nodes of the persistent cluster.", redeploy=True)
PERSISTENT_CAPACITY_MAX = declare("bulk.import.persistent.emr.max.capacity", _INSTANCES, 10, Group.BULK_IMPORT, "The maximum number of other nodes of the persistent cluster.", redeploy=True)
PERSISTENT_JOBS_MAX = declare("bulk.import.persistent.emr.concurrent.jobs", whole_number(1, 100), 1, Group.BULK_IMPORT, "The maximum number of concurrent jobs on the persistent cluster.", redeploy=True)

EXPORT_TASKS_MAX = declare("bulk.export.max.concurrent.tasks", whole_number(0, 10_000), 10, Group.BULK_EXPORT, "The maximum number of concurrent bulk export tasks on AWS.")
EXPORT_TASK_CPU = declare("bulk.export.task.cpu", whole_number(256, 16_384), 4096, Group.BULK_EXPORT, "CPU units of a bulk export task.", redeploy=True)
EXPORT_TASK_MEMORY_MB = declare("bulk.export.task.memory.mb", whole_number(512, 122_880), 8192, Group.BULK_EXPORT, "The memory of a bulk export task, in MiB.", redeploy=True)
# fmt: on

SPARK_ON_SERVERLESS: dict[str, Property[Any]] = {
    "spark.executor.cores": SERVERLESS_EXECUTOR_CORES,
    "spark.executor.memory": SERVERLESS_EXECUTOR_MEMORY,
    "spark.emr-serverless.executor.disk": SERVERLESS_EXECUTOR_DISK,
    "spark.dynamicAllocation.maxExecutors": SERVERLESS_EXECUTORS,
    "spark.driver.cores": SERVERLESS_DRIVER_CORES,
    "spark.driver.memory": SERVERLESS_DRIVER_MEMORY,
}
SPARK_ON_CLUSTERS: dict[str, Property[Any]] = {
    "spark.executor.cores": EXECUTOR_CORES,
    "spark.executor.memory": EXECUTOR_MEMORY,
    "spark.dynamicAllocation.maxExecutors": EXECUTORS,
    "spark.driver.cores": DRIVER_CORES,
    "spark.driver.memory": DRIVER_MEMORY,
}
"""Settings of Spark, and the properties that are their defaults."""
