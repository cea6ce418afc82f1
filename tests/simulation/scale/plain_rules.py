"""Rules of a small instance, so that tests of the services need no synthesis."""

from collections.abc import Mapping
from dataclasses import replace

from simulation.scale.rules import FunctionRule, QueueRule, Rules, ScheduleRule, TaskRule
from sleeper.properties.instance import COMPACTION_TASKS_MAX, ID, INGEST_TASKS_MAX
from sleeper.properties.values import instance_properties
from sleeper.retries import Backoff

CREATE = FunctionRule("create-compaction-jobs", 2048, 300)
COMMIT = FunctionRule("commit-transactions", 1769, 60, reserved=10)
FAN_OUT = FunctionRule("fan-out", 1024, 300)
START = FunctionRule("start-tasks", 1024, 55)


def plain_rules(values: Mapping[str, str] | None = None) -> Rules:
    """Returns rules with one operation, the committer, and both kinds of tasks."""
    queues = (
        QueueRule("compaction_job_creation", True, 1800, 10, CREATE, 1, 10),
        QueueRule("commits", True, 360, 20, COMMIT, 10, 10),
        QueueRule("ingest", False, 900, 3),
        QueueRule("compaction", False, 900, 3),
    )
    schedules = (
        ScheduleRule("compaction-job-creation", 60, 60, FAN_OUT),
        ScheduleRule("start-tasks-ingest", 60, 60, START),
        ScheduleRule("start-tasks-compaction", 60, 60, START),
    )
    properties = instance_properties({ID.name: "plain", **(values or {})})
    tasks = (
        TaskRule("ingest", 2.0, 4.0, properties.get(INGEST_TASKS_MAX)),
        TaskRule("compaction", 4.0, 8.0, properties.get(COMPACTION_TASKS_MAX)),
    )
    return Rules(
        queues={each.name: each for each in queues},
        schedules={each.name: each for each in schedules},
        tasks={each.kind: each for each in tasks},
        properties=properties,
        alarms=4,
        rounds_waiting_max=10,
        conflict_backoff=Backoff(retries=19, seconds_first=0.01, seconds_max=1.0),
        settle_backoff=Backoff(
            seconds_first=0.25, seconds_max=10.0, jitter=0.5, seconds_total=60.0
        ),
        jobs_per_dispatch=500,
        threads_reading=4,
    )


def with_queue(rules: Rules, name: str, **changes: int | None) -> Rules:
    """Returns the rules with changes of a queue's rule."""
    queue = replace(rules.queues[name], **changes)  # type: ignore[arg-type]
    return replace(rules, queues={**rules.queues, name: queue})
