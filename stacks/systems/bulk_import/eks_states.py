"""The Step Functions states of a bulk import on EKS.

The first states create the Kubernetes resources that a job needs, by name. They usually exist,
which Kubernetes reports as a conflict (409) and the state machine ignores.
"""

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


def states_of_job(name: str, endpoint: str, authority: str) -> dict[str, Any]:
    """Returns the definition for the cluster of that name."""
    cluster = {"ClusterName": name, "Endpoint": endpoint, "CertificateAuthority": authority}
    steps = {
        "Namespace": (_CORE, _named("v1", "Namespace", KUBERNETES_NAMESPACE)),
        "ServiceAccount": (
            f"{_CORE}/{KUBERNETES_NAMESPACE}/serviceaccounts",
            _named("v1", "ServiceAccount", KUBERNETES_SERVICE_ACCOUNT, _NAMESPACED),
        ),
        "RoleBinding": (f"{_RIGHTS}/{KUBERNETES_NAMESPACE}/rolebindings", _binding()),
    }
    names = [*steps, "RunJob"]
    states: dict[str, Any] = {
        step: _made(cluster, path, body, names[at + 1])
        for at, (step, (path, body)) in enumerate(steps.items())
    }
    states["RunJob"] = {
        "Type": "Task",
        "Resource": "arn:aws:states:::eks:runJob.sync",
        "Parameters": {
            **cluster,
            "Namespace": KUBERNETES_NAMESPACE,
            "LogOptions": {"RetrieveLogs": False},
            "Job": _job(),
        },
        "Retry": [_TRANSIENT],
        "End": True,
    }
    return {"StartAt": names[0], "States": states}


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
