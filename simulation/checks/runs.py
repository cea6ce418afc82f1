"""Rules of runs and of what they leave: none commits late, none is committed twice, files of others
are collected only after the delay.
"""

from collections import Counter

from simulation.checks.violation import require
from simulation.model.fold import TableModel
from simulation.model.journal import Journal
from simulation.model.submitted import batch_names
from sleeper.instance import OpenTable
from sleeper.properties.table import COLLECTION_DELAY_MINUTES
from sleeper.statestore.fold import Fold
from sleeper.statestore.log import LogEntry
from sleeper.statestore.rows import find_file
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.statestore.transactions.codec import decode_entry
from sleeper.statestore.transactions.collection import CollectFiles
from sleeper.statestore.transactions.compaction_jobs import CommitCompaction

_LATE = "no late run commits"
_ONCE = "a change is committed once"
_DELAY = "a file is collected after the delay"
_TRIMMED = "the log reaches back to two snapshots"
_MINUTE_MS = 60_000
_SNAPSHOTS_KEPT = 2


def check_run_ages(model: TableModel, orphan_age_ms: int) -> None:
    """Checks that no run committed after half the orphan age: its files may have been collected."""
    for each in model.log:
        if isinstance(each.transaction, AddFiles | CommitCompaction):
            age_ms = each.time_ms - each.transaction.run_start_ms
            require(
                age_ms <= orphan_age_ms // 2,
                _LATE,
                f"{each.transaction.kind} {each.transaction.id} is {age_ms} ms old",
                table=model.id,
                number=each.number,
            )


def check_batches(model: TableModel, journal: Journal) -> None:
    """Checks that each file of the batcher is in one job at most."""
    names = Counter(
        name
        for each in model.log
        if isinstance(each.transaction, AddFiles) and each.transaction.id not in journal.ingests
        for name in batch_names(journal, each.transaction)
    )
    repeated = [name for name, count in names.items() if count > 1]
    require(not repeated, _ONCE, "files in two jobs", table=model.id, files=repeated)


def collection_delay_ms(table: OpenTable) -> int:
    """Returns the time for which a file without references stays."""
    return table.properties().get(COLLECTION_DELAY_MINUTES) * _MINUTE_MS


def check_delays(fold: Fold, entry: LogEntry, delay_ms: int) -> None:
    """Checks the files that the next entry collects. The fold has the entries before it."""
    for encoded in decode_entry(entry):
        if isinstance(encoded.transaction, CollectFiles):
            for path in encoded.transaction.paths:
                file = find_file(fold, path)
                if file is not None and file.unreferenced_time_ms is not None:
                    require(
                        entry.time_ms - file.unreferenced_time_ms >= delay_ms,
                        _DELAY,
                        f"{path} lost its last reference at {file.unreferenced_time_ms}",
                        entry=entry,
                    )


def check_trimmed(table: OpenTable, model: TableModel) -> None:
    """Checks that the log has every entry after the second last snapshot."""
    snapshots = table.state.snapshots()
    first = model.first
    if len(snapshots) >= _SNAPSHOTS_KEPT:
        first = snapshots[_SNAPSHOTS_KEPT - 1].number
    if first < model.number:
        require(
            not table.state.is_trimmed(first + 1),
            _TRIMMED,
            f"transaction {first + 1} is trimmed",
            table=model.id,
            snapshots=snapshots,
        )
