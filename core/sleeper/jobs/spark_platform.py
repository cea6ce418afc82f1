"""The port of Spark platforms (EMR Serverless, EMR, EKS), and arguments of spark-submit.

A *platform run* is one attempt at a job on a platform, identified here by a run id and on the
platform by a *reference*. Anyone who may send a message chooses its Spark settings, so only
settings that size a job are allowed, none that names code or a path. The driver is a file of the
image. YARN does not look there, so clusters of EMR get a copy from S3.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.properties.deployment import SPARK_ON_CLUSTERS, SPARK_ON_SERVERLESS
from sleeper.properties.instance import BULK_IMPORT_TASK_MEMORY_BYTES
from sleeper.properties.values import InstanceProperties

_MIB = 1024**2
# Prefixes in messages of gchq/sleeper, before the name of the Spark setting.
_OLDER_PREFIXES = ("sleeper.bulk.import.emr.serverless.", "sleeper.bulk.import.emr.")
_VALUE = re.compile(r"[A-Za-z0-9._:%+-]{1,200}")
# Settings that size a job or limit its retries and timeouts. None of these loads code, reads a
# file, runs a command, or sets the identity of the job.
_ALLOWED = re.compile(
    r"spark\.("
    r"(driver|executor)\.(cores|memory|memoryOverhead|memoryOverheadFactor)"
    r"|driver\.maxResultSize"
    r"|executor\.(instances|heartbeatInterval)"
    r"|emr-serverless\.(driver|executor)\.disk(\.type)?"
    r"|dynamicAllocation\.[A-Za-z.]{1,60}"
    r"|speculation(\.[A-Za-z.]{1,60})?"
    r"|memory\.(fraction|storageFraction|offHeap\.enabled|offHeap\.size)"
    r"|default\.parallelism"
    r"|task\.(cpus|maxFailures)"
    r"|stage\.maxConsecutiveAttempts"
    r"|network\.timeout"
    r"|locality\.wait(\.(node|process|rack))?"
    r"|rdd\.compress"
    r"|reducer\.[A-Za-z]{1,60}"
    r"|shuffle\.(compress|spill\.compress|file\.buffer|io\.maxRetries|io\.retryWait)"
    r"|sql\.(shuffle\.partitions|files\.maxPartitionBytes)"
    r"|sql\.adaptive\.(enabled|advisoryPartitionSizeInBytes)"
    r"|sql\.adaptive\.(coalescePartitions|skewJoin)\.[A-Za-z]{1,60}"
    r"|storage\.level"
    r")"
)
# A task sorts in memory, and holds the Arrow batches that it exchanges with Spark.
_TIMES_TASK_MEMORY = 2
_PYTHON_MIB = 1024


class PlatformName(Enum):
    """The platforms; each has a queue and a stack."""

    EMR_SERVERLESS = "emr_serverless"
    EMR = "emr"
    PERSISTENT_EMR = "persistent_emr"
    EKS = "eks"


@dataclass(frozen=True, slots=True)
class PlatformJob:
    """A run of the driver on a platform, with its arguments and Spark settings.

    `environment` applies to driver and executors.
    """

    run_id: str
    job_id: str
    arguments: tuple[str, ...]
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    platform_spec: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


class RunState(Enum):
    """The state of a run as its platform reports it."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of a run as its platform reports it; `reason` explains a failure."""

    state: RunState
    reason: str = ""


class SparkPlatform(Protocol):
    """A platform that runs one driver per job."""

    def submit(self, job: PlatformJob) -> str:
        """Starts the job and returns a reference. A run id is started once.

        InvalidRequestError if the message requests invalid settings.
        """

    def outcome(self, reference: str) -> RunOutcome:
        """Returns the outcome. NotFoundError if the platform no longer knows the run."""


def find_outcome(platform: SparkPlatform, reference: str) -> RunOutcome:
    """Returns the outcome of a run. One that the platform no longer knows has failed."""
    try:
        return platform.outcome(reference)
    except NotFoundError as error:
        return RunOutcome(RunState.FAILED, f"unknown to the platform: {error}")


def make_run_id(table_id: str, job_id: str, message_id: str) -> str:
    """Returns the id of a message's run, which is the same for every delivery."""
    return hashlib.sha256(f"{table_id}#{job_id}#{message_id}".encode()).hexdigest()[:32]


def spark_settings(
    platform: PlatformName, properties: InstanceProperties, requested: Mapping[str, str]
) -> dict[str, str]:
    """Returns the instance's Spark settings, overridden by those of a message.

    InvalidRequestError if a message may not set one of them.
    """
    serverless = platform is PlatformName.EMR_SERVERLESS
    defaults = SPARK_ON_SERVERLESS if serverless else SPARK_ON_CLUSTERS
    settings = {name: str(properties.get(prop)) for name, prop in defaults.items()}
    settings |= {"spark.dynamicAllocation.enabled": "true"}
    settings |= dict(_checked(name, value) for name, value in requested.items())
    if "spark.executor.memoryOverhead" not in settings:
        overhead = _overhead_mib(settings["spark.executor.cores"], properties)
        settings["spark.executor.memoryOverhead"] = f"{overhead}m"
    return settings


def _checked(name: str, value: str) -> tuple[str, str]:
    for prefix in _OLDER_PREFIXES:
        name = name.removeprefix(prefix)
    if not _ALLOWED.fullmatch(name):
        raise InvalidRequestError(
            f'bulk import message: "sparkConf" may not set {name[:200]!r}: only settings that size '
            "a job"
        )
    if not _VALUE.fullmatch(value):
        raise InvalidRequestError(
            f'bulk import message: "sparkConf" {name}: {value[:200]!r} is not a number, size or '
            "word"
        )
    return name, value


def _overhead_mib(cores: str, properties: InstanceProperties) -> int:
    """Returns the memory of an executor's Python workers, one for each core."""
    if not cores.isdecimal():
        raise InvalidRequestError(
            f'bulk import message: "sparkConf" spark.executor.cores: {cores!r} is not a number'
        )
    task_mib = properties.get(BULK_IMPORT_TASK_MEMORY_BYTES) // _MIB
    return _PYTHON_MIB + int(cores) * _TIMES_TASK_MEMORY * task_mib


MAIN_FILE = "local:///opt/sleeper/main.py"
"""The driver's file in the image of `containers/bulk_import`."""
PYTHON = "/opt/sleeper/venv/bin/python"
KUBERNETES_NAMESPACE = "sleeper-bulk-import"
KUBERNETES_SERVICE_ACCOUNT = "bulk-import"
_ONE_TRY = {"spark.yarn.maxAppAttempts": "1", "spark.yarn.submit.waitAppCompletion": "true"}


def submit_options(settings: Mapping[str, str]) -> list[str]:
    """Returns the settings as options, ordered by name."""
    return [part for name in sorted(settings) for part in ("--conf", f"{name}={settings[name]}")]


def serverless_settings(job: PlatformJob) -> dict[str, str]:
    """Returns the settings on EMR Serverless, whose application has the image."""
    variables = {**job.environment, "PYSPARK_PYTHON": PYTHON}
    return {
        **job.spark_conf,
        **_prefixed(
            "spark.emr-serverless.driverEnv.", {**variables, "PYSPARK_DRIVER_PYTHON": PYTHON}
        ),
        **_prefixed("spark.executorEnv.", variables),
    }


def yarn_command(job: PlatformJob, image: str, main_file: str) -> tuple[str, ...]:
    """Returns the command for a node of an EMR cluster. Driver and executors run in the image.

    `main_file` is the driver's file in S3. Spark's YARN client copies it to the working folder of
    the driver's container, from which alone YARN starts it, and copies no `local:` file.

    The command runs as long as the job. YARN does not restart a driver: its exit is a failure of
    the job, which may be sent again.
    """
    variables = {
        **job.environment,
        "PYSPARK_PYTHON": PYTHON,
        "YARN_CONTAINER_RUNTIME_TYPE": "docker",
        "YARN_CONTAINER_RUNTIME_DOCKER_IMAGE": image,
        "YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS": "/etc/passwd:/etc/passwd:ro",
    }
    settings = {
        **job.spark_conf,
        **_ONE_TRY,
        **_prefixed("spark.yarn.appMasterEnv.", variables),
        **_prefixed("spark.executorEnv.", variables),
    }
    where = ["spark-submit", "--master", "yarn", "--deploy-mode", "cluster"]
    name = ["--name", f"sleeper-{job.run_id}"]
    return (*where, *name, *submit_options(settings), main_file, *job.arguments)


def kubernetes_arguments(job: PlatformJob, image: str) -> tuple[str, ...]:
    """Returns the arguments of spark-submit in the driver's pod. Kubernetes expands `$(…)`."""
    settings = {
        **job.spark_conf,
        **_prefixed("spark.executorEnv.", {**job.environment, "PYSPARK_PYTHON": PYTHON}),
        # Without an external shuffle service, executors with shuffle data must not be removed.
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.driver.host": "$(POD_IP)",
        # The driver of a pod has no other setting for its Python.
        "spark.pyspark.python": PYTHON,
        "spark.kubernetes.container.image": image,
        "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
        "spark.kubernetes.namespace": KUBERNETES_NAMESPACE,
        "spark.kubernetes.authenticate.serviceAccountName": KUBERNETES_SERVICE_ACCOUNT,
        "spark.kubernetes.authenticate.executor.serviceAccountName": KUBERNETES_SERVICE_ACCOUNT,
    }
    where = ["--master", "k8s://https://kubernetes.default.svc", "--deploy-mode", "client"]
    return (*where, *submit_options(settings), MAIN_FILE, *job.arguments)


def docker_configuration(image: str) -> dict[str, Any]:
    """Returns the YARN configuration that trusts the image's registry."""
    trusted = {"docker.trusted.registries": f"local,{image.partition('/')[0]}"}
    docker = {"Classification": "docker", "Properties": trusted}
    return {"Classification": "container-executor", "Configurations": [docker]}


def _prefixed(prefix: str, variables: Mapping[str, str]) -> dict[str, str]:
    return {f"{prefix}{name}": value for name, value in variables.items()}
