"""What is measured of a table, for charts and alarms."""

from sleeper.reports.metric import Metric
from sleeper.statestore.store import StateStore


def gather_table_metrics(store: StateStore) -> dict[Metric, int]:
    """Counts at the newest version."""
    with store.reading() as state:
        totals, jobs = state.files.totals(), state.jobs.count()
        return {
            Metric.ROWS: totals.rows,
            Metric.BYTES: totals.bytes,
            Metric.FILES: totals.files,
            Metric.FILES_WITHOUT_REFERENCES: totals.unreferenced_files,
            Metric.FILE_REFERENCES: totals.references,
            Metric.PARTITIONS: totals.partitions,
            Metric.LEAF_PARTITIONS: totals.leaves,
            Metric.UNFINISHED_COMPACTION_JOBS: jobs,
            Metric.TRANSACTION_NUMBER: state.number,
        }
