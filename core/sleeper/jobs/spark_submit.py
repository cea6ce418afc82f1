"""Arguments of spark-submit on each kind of cluster. The driver is a file of the image."""

from collections.abc import Mapping
from typing import Any

from sleeper.jobs.spark_platform import PlatformJob

MAIN_FILE = "local:///opt/sleeper/main.py"
"""The driver's file in the image of `containers/bulk_import`."""
PYTHON = "/opt/sleeper/venv/bin/python"
KUBERNETES_NAMESPACE = "sleeper-bulk-import"
KUBERNETES_SERVICE_ACCOUNT = "bulk-import"
_ONE_TRY = {"spark.yarn.maxAppAttempts": "1", "spark.yarn.submit.waitAppCompletion": "true"}


def submit_options(settings: Mapping[str, str]) -> list[str]:
    """The settings as options, in the order of their names."""
    return [part for name in sorted(settings) for part in ("--conf", f"{name}={settings[name]}")]


def serverless_settings(job: PlatformJob) -> dict[str, str]:
    """Settings on EMR Serverless, whose application has the image."""
    variables = {**job.environment, "PYSPARK_PYTHON": PYTHON}
    return {
        **job.spark_conf,
        **_prefixed(
            "spark.emr-serverless.driverEnv.", {**variables, "PYSPARK_DRIVER_PYTHON": PYTHON}
        ),
        **_prefixed("spark.executorEnv.", variables),
    }


def yarn_command(job: PlatformJob, image: str) -> tuple[str, ...]:
    """The command on a node of an EMR cluster. Driver and executors run in the image.

    It lasts as long as the job. A driver that died is not started again by YARN: it is told as
    a failure, and the job may be sent again.
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
    return (*where, *name, *submit_options(settings), MAIN_FILE, *job.arguments)


def kubernetes_arguments(job: PlatformJob, image: str) -> tuple[str, ...]:
    """Arguments of spark-submit in a pod, which is the driver. Kubernetes fills in `$(…)`."""
    settings = {
        **job.spark_conf,
        **_prefixed("spark.executorEnv.", {**job.environment, "PYSPARK_PYTHON": PYTHON}),
        # Without an external shuffle service, executors that hold pieces stay.
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.driver.host": "$(POD_IP)",
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
