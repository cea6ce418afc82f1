"""Watches an instance for what does not happen, and reports it as metrics of CloudWatch.

The *watch* is a function that a rule starts every few minutes. Each time it switches the polls of
queues (`sleeper.aws.polling`), and looks at the queues for dead letters, and for messages that
wait. Once an hour it also looks at the functions of the instance, and at its problems
(`sleeper.reports.status`). It asks CloudWatch only about queues with messages, because each answer
has a price. What it finds is logged with its name.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from sleeper.aws.metrics import DELAY, Series, Values, read_metrics, to_time
from sleeper.errors import UnavailableError
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueCounts, QueueName
from sleeper.properties.deployed import DEPLOYED_QUEUES
from sleeper.reports.metric import Metric
from sleeper.reports.problem import Problem, ProblemState
from sleeper.reports.status import gather_status

logger = logging.getLogger(__name__)
_MINUTE_SECONDS, _HOUR_SECONDS = 60, 3600
_AGE_SECONDS = 900
_ERROR_SECONDS = 300
# Errors in fewer periods of an hour are repaired by retries.
_ERROR_PERIODS = 3
_PERIODS_MISSED = 3
_STATES = {
    ProblemState.DEAD: Metric.FAILING,
    ProblemState.FAILING: Metric.FAILING,
    ProblemState.OVERDUE: Metric.OVERDUE,
    ProblemState.LAGGING: Metric.LAGGING,
}


@dataclass(frozen=True, slots=True)
class WatchedResources:
    """The functions and DynamoDB tables that are watched.

    The names of `functions` are those after the `prefix` of the instance. Each has the period in
    minutes of the rule that starts it, or 0. `watch` is the function of the watch itself. Throttles
    count of the functions in `throttled` and of `tables`.
    """

    prefix: str
    watch: str
    functions: Mapping[str, int]
    throttled: Sequence[str]
    tables: Sequence[str]

    @property
    def schedules(self) -> dict[str, int]:
        """The functions that rules start, with their periods."""
        return {name: minutes for name, minutes in self.functions.items() if minutes}

    def series(self, metric: str, function: str, period_seconds: int) -> Series:
        """Returns the sums of a metric of a function."""
        return Series(metric, "FunctionName", self.prefix + function, "Sum", period_seconds)


class WatchParts:
    """Parts of the watch, of which one that fails does not prevent the others."""

    def __init__(self) -> None:
        self._failed: dict[str, Exception] = {}

    @contextmanager
    def run(self, name: str) -> Iterator[None]:
        """Runs a part. Its error is logged and kept."""
        try:
            yield
        except Exception as error:
            logger.exception("the watch failed in a part: %s", name)
            self._failed[name] = error

    def check(self) -> None:
        """Raises UnavailableError if a part has failed."""
        if self._failed:
            texts = "; ".join(f"{name}: {error}" for name, error in self._failed.items())
            raise UnavailableError(f"parts of the watch failed: {texts}") from next(
                iter(self._failed.values())
            )


_ERRORS_OF_ACCOUNT = Series("Errors", "", "", "Sum", _HOUR_SECONDS)


def count_queues(instance: Instance) -> dict[QueueName, QueueCounts]:
    """Returns the numbers of messages of all queues."""
    return {queue: instance.jobs.queue(queue).counts() for queue in instance.jobs.queues}


def watch_queues(
    instance: Instance, queues: Mapping[QueueName, QueueCounts], now_ms: int
) -> dict[str, int]:
    """Returns the number of dead letters, and the age of the oldest message of all queues."""
    dead, waiting = 0, []
    for queue, counts in queues.items():
        if counts.dead:
            logger.warning("queue %s has %d dead letters", queue.value, counts.dead)
            dead += counts.dead
        if counts.visible:
            waiting.append(queue.value)
    urls = {name: instance.properties().get(DEPLOYED_QUEUES[name].url) or name for name in waiting}
    ages = {
        Series(
            "ApproximateAgeOfOldestMessage",
            "QueueName",
            url.rpartition("/")[2],
            "Maximum",
            _MINUTE_SECONDS,
        ): name
        for name, url in urls.items()
    }
    oldest = 0
    for series, values in read_metrics(ages, now_ms, timedelta(seconds=_AGE_SECONDS)).items():
        age = int(values[-1][1]) if values else 0
        logger.info("the oldest message of queue %s waits for %d s", ages[series], age)
        oldest = max(oldest, age)
    return {Metric.DEAD_LETTERS: dead, Metric.OLDEST_MESSAGE_SECONDS: oldest}


def watch_functions(resources: WatchedResources, now_ms: int) -> dict[str, int]:
    """Returns the numbers of failing functions, of throttles, and of missed schedules.

    A function is failing if there were errors in three of the five-minute periods of the last
    hour, or in all in which it ran. A schedule is missed if its function did not run for three of
    its periods, at the beginning and in the middle of which the watch ran.
    """
    errors = _read_errors(resources, now_ms)
    throttles = {resources.series("Throttles", name, _HOUR_SECONDS) for name in resources.throttled}
    throttles |= {
        Series(metric, "TableName", name, "Sum", _HOUR_SECONDS)
        for name in resources.tables
        for metric in ("ReadThrottleEvents", "WriteThrottleEvents")
    }
    found = read_metrics(throttles, now_ms, timedelta(hours=1))
    failing = [series.name for series, values in errors.items() if _is_failing(values)]
    for name in failing:
        logger.warning("function %s fails", name)
    count = 0
    for series, values in found.items():
        if throttled := int(sum(value for _, value in values)):
            logger.warning("%s of %s: %d", series.metric, series.name, throttled)
            count += throttled
    missed = _find_missed(resources, now_ms)
    for name in missed:
        logger.warning("the schedule of function %s is missed", name)
    return {
        Metric.FAILING_FUNCTIONS: len(failing),
        Metric.THROTTLES: count,
        Metric.OVERDUE: len(missed),
    }


def watch_problems(instance: Instance) -> dict[str, int]:
    """Returns the numbers of problems of the instance, without dead letters of queues."""
    problems = [each for each in gather_status(instance) if not _is_dead_letter(each)]
    for each in problems:
        logger.warning("%s %s is %s: %s", each.kind, each.name, each.state.value, each.reason)
    return dict(Counter(_STATES[each.state].value for each in problems))


def _is_dead_letter(problem: Problem) -> bool:
    return problem.kind == "queue" and problem.state is ProblemState.DEAD


def _read_errors(resources: WatchedResources, now_ms: int) -> Values:
    """Reads the errors of each function, unless no function of the account had any."""
    hour = timedelta(hours=1)
    (values,) = read_metrics([_ERRORS_OF_ACCOUNT], now_ms, hour).values()
    if not any(count for _, count in values):
        return {}
    errors = [resources.series("Errors", name, _ERROR_SECONDS) for name in resources.functions]
    return read_metrics(errors, now_ms, hour)


def _is_failing(values: Sequence[tuple[datetime, float]]) -> bool:
    """Judges the errors of the periods in which a function ran."""
    failed = sum(count > 0 for _, count in values)
    return 0 < failed >= min(_ERROR_PERIODS, len(values))


def _find_missed(resources: WatchedResources, now_ms: int) -> list[str]:
    schedules = resources.schedules
    names = {resources.watch, *schedules}
    runs = {name: resources.series("Invocations", name, _ERROR_SECONDS) for name in names}
    longest = timedelta(minutes=_PERIODS_MISSED * max(schedules.values(), default=0))
    found = read_metrics(runs.values(), now_ms, longest + timedelta(hours=1))
    times = {
        name: [time for time, count in found[series] if count > 0] for name, series in runs.items()
    }

    def is_missed(name: str, minutes: int) -> bool:
        end = to_time(now_ms) - DELAY
        window = max(timedelta(minutes=_PERIODS_MISSED * minutes), timedelta(hours=1))
        begin = end - window
        first_period = begin + timedelta(minutes=max(minutes, 2 * _ERROR_SECONDS // 60))
        was_deployed = any(begin <= time <= first_period for time in times[resources.watch])
        # A pause that delays a function to the end of the window has covered its middle third.
        middle, last = begin + window / _PERIODS_MISSED, end - window / _PERIODS_MISSED
        was_resumed = not any(middle <= time <= last for time in times[resources.watch])
        has_run = any(time >= begin for time in times[name])
        return was_deployed and not was_resumed and not has_run

    return [name for name, minutes in schedules.items() if is_missed(name, minutes)]
