"""Tasks on ECS Fargate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sleeper.aws.errors import translate_errors
from sleeper.errors import UnavailableError
from sleeper.jobs.tracker import Launch

if TYPE_CHECKING:
    from mypy_boto3_ecs import ECSClient

# The limit of RunTask.
_TASKS_PER_CALL = 10


@dataclass(frozen=True, slots=True)
class EcsTaskLauncher:
    """Implements `sleeper.jobs.tracker.TaskLauncher` for one task definition."""

    client: "ECSClient"
    cluster: str
    task_definition: str
    subnets: Sequence[str]
    security_groups: Sequence[str]
    has_public_addresses: bool = False

    def running(self) -> int:
        """See the port. It counts tasks of all revisions of the task definition."""
        pages = self.client.get_paginator("list_tasks").paginate(
            cluster=self.cluster, family=self._family, desiredStatus="RUNNING"
        )
        with translate_errors(f"tasks of {self._family}"):
            return sum(len(page["taskArns"]) for page in pages)

    def start(self, count: int) -> Launch:
        """See the port. It stops at the first request that starts fewer tasks than requested."""
        started = 0
        while started < count:
            requested = min(count - started, _TASKS_PER_CALL)
            try:
                with translate_errors(f"tasks of {self._family}"):
                    response = self.client.run_task(**self._request(requested))
            except UnavailableError as error:
                # Throttled, or out of capacity.
                return Launch(started, (str(error),))
            started += len(response["tasks"])
            failures = [_failure_text(failure) for failure in response.get("failures", ())]
            if failures or len(response["tasks"]) < requested:
                return Launch(started, tuple(dict.fromkeys(failures)))
        return Launch(started)

    @property
    def _family(self) -> str:
        """The family: the definition's name without its ARN prefix and revision."""
        return self.task_definition.rpartition("/")[2].partition(":")[0]

    def _request(self, count: int) -> dict[str, Any]:
        return {
            "cluster": self.cluster,
            "taskDefinition": self.task_definition,
            "launchType": "FARGATE",
            "count": count,
            "propagateTags": "TASK_DEFINITION",
            "networkConfiguration": {
                "awsvpcConfiguration": {
                    "subnets": list(self.subnets),
                    "securityGroups": list(self.security_groups),
                    "assignPublicIp": "ENABLED" if self.has_public_addresses else "DISABLED",
                }
            },
        }


def _failure_text(failure: Mapping[str, object]) -> str:
    return ": ".join(str(failure[part]) for part in ("reason", "detail") if failure.get(part))
