"""Operations that look at the whole instance: they must answer at any time."""

from simulation.workload.client import Client
from simulation.workload.registry import always, operation
from sleeper.api.report_rows import gather_report
from sleeper.reports.status import gather_status

_REPORTS = ("tables", "queues", "ingest-jobs", "compaction-jobs", "tasks", "dead-letters", "all")


@operation(1, always)
def read_status(client: Client) -> None:
    """Asks for all problems."""
    gather_status(client.instance)


@operation(0.5, always)
def read_report(client: Client) -> None:
    """Reads a report of all tables."""
    gather_report(client.instance, client.random.choice(_REPORTS), None, 20)
