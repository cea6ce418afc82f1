"""A user of a deployed instance, with docs/formats.md and the command line only."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from sleeper.cli.main import app
from tests.system.formats_client import SECONDS_MAX, FormatsClient
from tests.system.roles import acting_as, credentials_of
from tests.unit.cli.conftest import CommandResult

_SCHEDULED = Path(__file__).parents[1] / "handlers" / "events" / "schedule.json"


@dataclass
class AwsUser(FormatsClient):
    """Besides, it makes rules due that would be so within minutes."""

    def sleeper(self, *arguments: object, status: int = 0) -> CommandResult:
        """Runs a command, which must end with that status."""
        messages = [str(item) for item in ("--instance", f"aws:{self.instance_id}", *arguments)]
        result = CliRunner().invoke(app, messages)
        assert result.exit_code == status, (messages, result.output, result.exception)
        return CommandResult(result.exit_code, result.stdout, result.stderr)

    def as_administrator(self) -> AbstractContextManager[None]:
        """Runs commands with the role of administration, until the context ends."""
        role = self.properties()["sleeper.admin.role.arn"]
        return acting_as(credentials_of(self.client, role))

    def report(self, kind: str, *more: object) -> list[dict[str, Any]]:
        """The report's rows."""
        return self.sleeper("report", kind, *more, "--output", "json").rows

    def jobs(self, kind: str = "ingest-jobs") -> dict[str, dict[str, Any]]:
        """Returns the states of jobs by id."""
        return {job["job"]: job for job in self.report(kind)}

    def has_come(self, job: str, *states: str) -> bool:
        """Whether an ingest job has come to one of these states. It must not be rejected."""
        message = self.jobs().get(job)
        assert message is None or message["state"] != "rejected", message
        return message is not None and message["state"] in states

    def state(self, table: str) -> dict[str, Any]:
        """The report on a table's state."""
        rows = self.report("state", "--table", table)
        return next(row for row in rows if row.get("report", "state") == "state")

    def rows(self, table: str, folder: Path) -> pa.Table:
        """All rows of a table, in its order."""
        place = folder / f"{table}.parquet"
        self.sleeper("query", table, "--format", "parquet", "--output", place)
        return pq.read_table(place)

    def in_flight(self, queue: str) -> int:
        """Returns the number of received messages that are not acknowledged."""
        counts = self.client("sqs").get_queue_attributes(
            QueueUrl=self.properties()[f"sleeper.{queue}.queue.url"],
            AttributeNames=["ApproximateNumberOfMessagesNotVisible"],
        )
        return int(counts["Attributes"]["ApproximateNumberOfMessagesNotVisible"])

    def fire(self, *rules: str) -> None:
        """Makes rules due now, as EventBridge does those that are switched on."""
        events, functions = self.client("events"), self.client("lambda")
        for rule in rules:
            name = f"{self.prefix}-{rule}"
            if events.describe_rule(Name=name)["State"] != "ENABLED":
                continue
            for target in events.list_targets_by_rule(Rule=name)["Targets"]:
                functions.invoke(
                    FunctionName=target["Arn"],
                    InvocationType="Event",
                    Payload=_SCHEDULED.read_bytes(),
                )

    def until(
        self,
        is_so: Callable[[], object],
        description: str,
        *rules: str,
        seconds: float = SECONDS_MAX,
        pause: float = 1.0,
    ) -> None:
        """Waits for a condition while schedules run. AssertionError after a timeout."""

        def is_so_now() -> bool:
            if is_so():
                return True
            self.fire(*rules)
            return False

        super().until(is_so_now, description, seconds=seconds, pause=pause)
