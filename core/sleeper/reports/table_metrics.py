"""What is measured of a table, for charts and alarms."""

from sleeper.statestore.store import StateStore


def gather_table_metrics(store: StateStore) -> dict[str, int]:
    """Counts at the newest version, by the names of their metrics."""
    with store.reading() as state:
        totals, jobs = state.files.totals(), state.jobs.count()
        return {
            "Rows": totals.rows,
            "Bytes": totals.bytes,
            "Files": totals.files,
            "FilesWithoutReferences": totals.unreferenced_files,
            "FileReferences": totals.references,
            "Partitions": totals.partitions,
            "LeafPartitions": totals.leaves,
            "UnfinishedCompactionJobs": jobs,
            "TransactionNumber": state.number,
        }
