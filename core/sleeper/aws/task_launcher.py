"""Tasks on ECS Fargate."""

from collections.abc import Sequence
from typing import Any

from sleeper.aws.errors import translated
from sleeper.errors import UnavailableError
from sleeper.jobs.task_launcher import Launch

# What RunTask starts at once.
_TASKS_PER_CALL = 10


class EcsTaskLauncher:
    """Implements `sleeper.jobs.task_launcher.TaskLauncher` for one task definition."""

    def __init__(
        self,
        client: Any,
        cluster: str,
        task_definition: str,
        subnets: Sequence[str],
        security_group: str,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._task_definition = task_definition
        self._subnets = list(subnets)
        self._security_group = security_group

    def running(self) -> int:
        """See the port. Every task of the family that is not to stop, whatever its revision."""
        pages = self._client.get_paginator("list_tasks").paginate(
            cluster=self._cluster, family=self._family, desiredStatus="RUNNING"
        )
        with translated(f"tasks of {self._family}"):
            return sum(len(page["taskArns"]) for page in pages)

    def start(self, count: int) -> Launch:
        """See the port. Stops at the first call that starts fewer than it was asked for."""
        started = 0
        while started < count:
            asked = min(count - started, _TASKS_PER_CALL)
            try:
                with translated(f"tasks of {self._family}"):
                    answer = self._client.run_task(**self._request(asked))
            except UnavailableError as error:
                # Throttled, or no capacity, which is told either way.
                return Launch(started, (str(error),))
            started += len(answer["tasks"])
            failures = [_said(failure) for failure in answer.get("failures", ())]
            if failures or len(answer["tasks"]) < asked:
                return Launch(started, tuple(dict.fromkeys(failures)))
        return Launch(started)

    @property
    def _family(self) -> str:
        """Of a definition's name or ARN, with or without a revision."""
        return self._task_definition.rpartition("/")[2].partition(":")[0]

    def _request(self, count: int) -> dict[str, Any]:
        return {
            "cluster": self._cluster,
            "taskDefinition": self._task_definition,
            "launchType": "FARGATE",
            "count": count,
            "propagateTags": "TASK_DEFINITION",
            "networkConfiguration": {
                "awsvpcConfiguration": {
                    "subnets": self._subnets,
                    "securityGroups": [self._security_group],
                    "assignPublicIp": "DISABLED",
                }
            },
        }


def _said(failure: dict[str, Any]) -> str:
    return ": ".join(str(failure[part]) for part in ("reason", "detail") if failure.get(part))
