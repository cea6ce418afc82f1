"""A fake Spark platform that records submissions and ends runs on request."""

from dataclasses import dataclass, field

from sleeper.errors import NotFoundError, SleeperError
from sleeper.jobs.spark_platform import PlatformJob, RunOutcome, RunState


@dataclass
class FakePlatform:
    """`request_count` counts submissions; `runs` are the started ones by run id."""

    request_count: int = 0
    runs: dict[str, PlatformJob] = field(default_factory=dict)
    outcomes: dict[str, RunOutcome] = field(default_factory=dict)
    refuses: SleeperError | None = None
    forgets: bool = False

    def submit(self, job: PlatformJob) -> str:
        self.request_count += 1
        if self.refuses is not None:
            raise self.refuses
        reference = f"run {job.run_id}"
        self.runs.setdefault(reference, job)
        return reference

    def outcome(self, reference: str) -> RunOutcome:
        if self.forgets or reference not in self.runs:
            raise NotFoundError(reference)
        return self.outcomes.get(reference, RunOutcome(RunState.RUNNING))

    def end(self, state: RunState, reason: str = "") -> None:
        """Ends all runs."""
        self.outcomes = dict.fromkeys(self.runs, RunOutcome(state, reason))
