"""The Step Functions states of a bulk import on EKS.

The *setup* creates the Kubernetes resources that jobs need, by name. They usually exist, which
Kubernetes reports as a conflict (409) and the state machine ignores. Only the setup needs the
rights of an administrator of the cluster, and it takes no input. A job starts it first.
"""

from dataclasses import dataclass
from typing import Any

from sleeper.jobs.spark_platform import KUBERNETES_NAMESPACE, KUBERNETES_SERVICE_ACCOUNT

_SUBMIT = "/usr/lib/spark/bin/spark-submit"
_DAY_SECONDS = 86_400
_CORE, _RIGHTS = "/api/v1/namespaces", "/apis/rbac.authorization.k8s.io/v1/namespaces"
_NAMESPACED = {"namespace": KUBERNETES_NAMESPACE}
_THERE_ALREADY = "EKS.409"
_TRANSIENT = {
    "ErrorEquals": ["EKS.500", "EKS.503", "EKS.504", "EKS.429", "States.Timeout"],
    "IntervalSeconds": 5,
    "BackoffRate": 2,
    "MaxAttempts": 5,
}


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """What Step Functions needs to call the API of a cluster."""

    name: str
    endpoint: str
    authority: str

    def parameters(self) -> dict[str, str]:
        """Returns the parameters of a call."""
        return {
            "ClusterName": self.name,
            "Endpoint": self.endpoint,
            "CertificateAuthority": self.authority,
        }


def states_of_setup(cluster: ClusterAddress) -> dict[str, Any]:
    """Returns the definition of the setup."""
    steps = {
        "Namespace": (_CORE, _named("v1", "Namespace", KUBERNETES_NAMESPACE)),
        "ServiceAccount": (
            f"{_CORE}/{KUBERNETES_NAMESPACE}/serviceaccounts",
            _named("v1", "ServiceAccount", KUBERNETES_SERVICE_ACCOUNT, _NAMESPACED),
        ),
        "RoleBinding": (f"{_RIGHTS}/{KUBERNETES_NAMESPACE}/rolebindings", _binding()),
    }
    names = [*steps, "Ready"]
    states: dict[str, Any] = {
        step: _made(cluster.parameters(), path, body, names[at + 1])
        for at, (step, (path, body)) in enumerate(steps.items())
    }
    return {"StartAt": names[0], "States": {**states, "Ready": {"Type": "Succeed"}}}


def states_of_job(cluster: ClusterAddress, setup_arn: str) -> dict[str, Any]:
    """Returns the definition of a job. `setup_arn` is the state machine of the setup."""
    setup = {
        "Type": "Task",
        "Resource": "arn:aws:states:::states:startExecution.sync:2",
        "Parameters": {"StateMachineArn": setup_arn, "Input": {}},
        "ResultPath": None,
        "Retry": [_TRANSIENT],
        "Next": "RunJob",
    }
    job = {
        "Type": "Task",
        "Resource": "arn:aws:states:::eks:runJob.sync",
        "Parameters": {
            **cluster.parameters(),
            "Namespace": KUBERNETES_NAMESPACE,
            "LogOptions": {"RetrieveLogs": False},
            "Job": _job(),
        },
        "Retry": [_TRANSIENT],
        "End": True,
    }
    return {"StartAt": "Setup", "States": {"Setup": setup, "RunJob": job}}


def _made(cluster: dict[str, str], path: str, body: dict[str, Any], after: str) -> dict[str, Any]:
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::eks:call",
        "Parameters": {**cluster, "Method": "POST", "Path": path, "RequestBody": body},
        "ResultPath": None,
        "Retry": [_TRANSIENT],
        "Catch": [{"ErrorEquals": [_THERE_ALREADY], "ResultPath": None, "Next": after}],
        "Next": after,
    }


def _named(
    version: str, kind: str, name: str, more: dict[str, str] | None = None
) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **(more or {})}}


def _binding() -> dict[str, Any]:
    """Returns the rights of the driver, which creates its executors' pods in its namespace."""
    version, group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    return {
        **_named(version, "RoleBinding", KUBERNETES_SERVICE_ACCOUNT, _NAMESPACED),
        "subjects": [{"kind": "ServiceAccount", "name": KUBERNETES_SERVICE_ACCOUNT, **_NAMESPACED}],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
    }


def _job() -> dict[str, Any]:
    """Returns a job with one attempt: a dead driver is a failure that can be sent again."""
    size = {"cpu.$": "$.cpu", "memory.$": "$.memory"}
    driver = {
        "name": "driver",
        "image.$": "$.image",
        "command": [_SUBMIT],
        "args.$": "$.arguments",
        "env.$": "$.environment",
        "resources": {"requests": size, "limits": {"memory.$": "$.memory"}},
    }
    pod = {
        "serviceAccountName": KUBERNETES_SERVICE_ACCOUNT,
        "restartPolicy": "Never",
        "containers": [driver],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name.$": "$.name"},
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": _DAY_SECONDS,
            "template": {"spec": pod},
        },
    }
