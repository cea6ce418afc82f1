"""Bugs of the state store: its transactions, its log, and its snapshots."""

from simulation.bugs import rules
from simulation.bugs.mutation import Mutation
from simulation.bugs.planted_bug import AWS, BOTH, PlantedBug
from simulation.faults import JUMPED, PAUSED

_TRANSACTIONS = "sleeper.statestore.transactions"
_COMMIT = "sleeper.statestore.entry_commit"
_COLLECTION = "sleeper.garbage_collection.collection"
_END_DELETES = "UPDATE deletes SET removed = :now WHERE removed IS NULL AND since"

BUGS = (
    PlantedBug(
        "lease-check-dropped",
        "a compaction commits only while its job holds its files",
        Mutation(
            f"{_TRANSACTIONS}.compaction_jobs:CommitCompaction.validate",
            "if _held_paths(fold, self.id, partition.key) != set(self.inputs):",
            "if not self.inputs:",
        ),
        (rules.ERROR, rules.ROWS),
        BOTH,
        focus=("create_compactions", "ingest_from_memory", PAUSED),
        size=100,
    ),
    PlantedBug(
        "reference-dropped-on-push-down",
        "the rows of a file are in exactly one of its references",
        Mutation(
            f"{_TRANSACTIONS}.partition_split:PushDownReferences.apply",
            "for partition_id, rows in move.to:",
            "for partition_id, rows in move.to[:1]:",
        ),
        (rules.ROWS,),
        BOTH,
        focus=("split", "ingest_from_memory"),
    ),
    PlantedBug(
        "reference-dropped-at-an-ancestor",
        "the output of a compaction of an inner partition has its reference",
        Mutation(
            f"{_TRANSACTIONS}.compaction_jobs:CommitCompaction.apply",
            "references = [(partition.key, self.output.rows)]",
            "references = [(partition.key, self.output.rows)][: partition.is_leaf]",
        ),
        (rules.ROWS, rules.COUNTED),
        BOTH,
        focus=("create_compactions", "ingest_from_memory", "split"),
    ),
    PlantedBug(
        "horizon-off-by-one",
        "the horizon rises no further than the collected files need",
        Mutation(
            f"{_TRANSACTIONS}.collection:RaiseHorizon.apply",
            "fold.horizon = self.horizon",
            "fold.horizon = self.horizon + 1",
        ),
        (rules.HORIZON,),
        BOTH,
    ),
    PlantedBug(
        "late-commit-accepted",
        "the commit of a run older than half the orphan age is refused",
        Mutation(
            f"{_TRANSACTIONS}.add_files:find_run_fault",
            "if age_ms > fold.orphan_age_ms // 2:",
            "if age_ms > fold.orphan_age_ms * 2:",
        ),
        (rules.LATE,),
        BOTH,
        focus=("ingest_from_memory", JUMPED),
    ),
    PlantedBug(
        "job-id-not-remembered",
        "a job id that comes again changes nothing",
        Mutation(
            f"{_COMMIT}:apply_transaction",
            "if transaction.remembered:",
            'if transaction.remembered and transaction.kind != "add_files":',
        ),
        (rules.ONCE,),
        BOTH,
        focus=("repeat_ingest", "ingest_from_files"),
    ),
    PlantedBug(
        "job-id-forgotten-early",
        "job ids are kept for 30 days",
        Mutation(
            "sleeper.statestore.fold:Fold.finish_entry",
            "too_old = self.time_ms - APPLIED_ID_DAYS * DAY_MS",
            "too_old = self.time_ms - DAY_MS // 24",
        ),
        (rules.ONCE,),
        BOTH,
        focus=("repeat_ingest", "ingest_from_files"),
    ),
    PlantedBug(
        "time-goes-back",
        "the log's time never decreases",
        Mutation(
            f"{_COMMIT}:EntryCommitter._entry_time",
            "return max(now_ms, fold.time_ms)",
            "return now_ms",
        ),
        (rules.TIME,),
        BOTH,
    ),
    PlantedBug(
        "split-of-an-inner-partition",
        "a split is conditional on the leaf still being a leaf",
        Mutation(
            f"{_TRANSACTIONS}.partition_split:SplitPartition.validate",
            "if not leaf.is_leaf:",
            "if leaf.split == 0:",
        ),
        (rules.TILES,),
        BOTH,
        focus=("split", "ingest_from_memory"),
    ),
    PlantedBug(
        "clone-without-pins",
        "a file that a clone shares is not collected",
        Mutation(
            f"{_TRANSACTIONS}.pins:PinFiles.apply",
            'fold.run("INSERT OR IGNORE INTO pins VALUES (?, ?)", (path_hash(path), self.clone))',
            "path_hash(path)",
        ),
        (rules.EXISTS, rules.ROWS),
        BOTH,
        focus=("clone", "remove_all_rows", "ingest_from_memory"),
    ),
    PlantedBug(
        "restore-misses-a-file",
        "a restored version has exactly its rows",
        Mutation(
            f"{_TRANSACTIONS}.restore:_RETURN_REFERENCES",
            '" WHERE r.added <= :at AND r.removed > :at AND NOT EXISTS ("',
            '" WHERE r.added <= :at AND r.removed > :at + 1 AND NOT EXISTS ("',
        ),
        (rules.ROWS,),
        BOTH,
        focus=("restore_version", "remove_all_rows", "ingest_from_memory"),
    ),
    PlantedBug(
        "restore-keeps-later-deletes",
        "a restored version has exactly its rows",
        Mutation(
            f"{_TRANSACTIONS}.restore:_END_DELETES",
            f'_END_DELETES = "{_END_DELETES} > :at"',
            f'_END_DELETES = "{_END_DELETES} > :now"',
        ),
        (rules.ROWS,),
        BOTH,
        focus=("restore_version", "delete_region", "ingest_from_memory"),
    ),
    PlantedBug(
        "last-number-wrong",
        "transaction numbers are dense",
        Mutation(
            f"{_COMMIT}:EntryCommitter._folded", "fold.number,", "fold.number + len(lines) - 1,"
        ),
        (rules.DENSE, rules.LOG),
        BOTH,
        focus=("transact",),
    ),
    PlantedBug(
        "delete-during-compaction-lost",
        "a compaction applies the deletes up to its assignment, and no later ones",
        Mutation(
            f"{_TRANSACTIONS}.compaction_jobs:CommitCompaction.apply",
            "insert_file(fold, self.output, numbers, assigned, references)",
            "insert_file(fold, self.output, numbers, fold.next_number, references)",
        ),
        (rules.ROWS,),
        BOTH,
        focus=("delete_region", "ingest_from_memory", "create_compactions"),
    ),
    PlantedBug(
        "load-keeps-old-rows",
        "a load replaces all rows of a snapshot table in one transaction",
        Mutation(
            f"{_TRANSACTIONS}.snapshot_loads:PublishSnapshot.apply",
            "remove_references(fold)",
            "find_later = self.find_table_fault(fold)",
        ),
        (rules.ROWS,),
        BOTH,
        focus=("ingest_from_memory",),
    ),
    PlantedBug(
        "log-trimmed-above-a-snapshot",
        "the log is trimmed only below the last two verified snapshots",
        Mutation(
            "sleeper.statestore.store:StateStore.trim",
            "limits = [verified[-1].number, *held, *followed]",
            "limits = [verified[0].number, *held, *followed]",
        ),
        (rules.TRIMMED,),
        BOTH,
        focus=("save_snapshot", "ingest_from_memory"),
    ),
    PlantedBug(
        "reference-not-counted",
        "a file is unreferenced when its last reference goes",
        Mutation(
            f"{_TRANSACTIONS}.partition_split:PushDownReferences.apply",
            "(len(move.to), file.key),",
            "(1, file.key),",
        ),
        (rules.COUNTED, rules.EXISTS, rules.ROWS),
        BOTH,
        focus=("split", "ingest_from_memory"),
    ),
    PlantedBug(
        "refused-transaction-half-committed",
        "of changes that are committed together, all or none are",
        Mutation(
            f"{_COMMIT}:apply_together", "fold.go_back(before)", "fold.partition_rows.clear()"
        ),
        (rules.HALF, rules.LOG, rules.ONCE, rules.ERROR, rules.REPLAY),
        BOTH,
        focus=("transact", JUMPED),
    ),
    PlantedBug(
        "merged-rows-look-newer",
        "a merged file has the smallest and the largest number of its inputs",
        Mutation(
            f"{_TRANSACTIONS}.compaction_jobs:CommitCompaction.apply",
            "numbers = (min(smallest), max(largest))",
            "numbers = (max(smallest), max(largest))",
        ),
        (rules.ROWS, rules.READS),
        BOTH,
        focus=("ingest_from_memory", "create_compactions"),
        size=80,
        seeds_max=30,
    ),
    PlantedBug(
        "write-id-not-compared",
        "an append that lost to another one is not taken for its own first try",
        Mutation(
            f"{_COMMIT}:EntryCommitter._landed",
            "return bool(entries) and entries[0].write_id == entry.write_id",
            "return bool(entries)",
        ),
        (rules.LOST, rules.ROWS, rules.REPLAY, rules.ERROR, rules.ACCEPTED),
        AWS,
    ),
    PlantedBug(
        "followers-ignored-by-the-collector",
        "the collector finds the files that no follower needs",
        Mutation(
            f"{_COLLECTION}:find_claims",
            'claims.append((kept, f"follower {follower.name} at version {follower.position}"))',
            'claims.append((number, f"follower {follower.name} at version {kept}"))',
        ),
        (rules.COLLECTED, rules.HORIZON),
        BOTH,
        focus=("follow_changes", "remove_all_rows", "ingest_from_memory"),
    ),
    PlantedBug(
        "history-retention-ignored",
        "versions are readable for the retention",
        Mutation(
            f"{_COLLECTION}:find_claims",
            "version = _oldest_since(state, now_ms - retention.versions_ms)",
            "version = _oldest_since(state, now_ms)",
        ),
        (rules.RETAINED,),
        BOTH,
        focus=("remove_all_rows", "ingest_from_memory"),
    ),
    PlantedBug(
        "follower-passed-early",
        "changes are kept for a follower for the retention",
        Mutation(
            f"{_COLLECTION}:find_claims",
            "floor = _oldest_since(state, now_ms - retention.followers_ms)",
            "floor = _oldest_since(state, now_ms)",
        ),
        (rules.RETAINED,),
        BOTH,
        focus=("follow_changes", "remove_all_rows", "ingest_from_memory"),
    ),
    PlantedBug(
        "reads-of-a-stale-copy",
        "a read sees everything that was acknowledged before it",
        Mutation(
            "sleeper.statestore.store:StateStore.newest_number",
            "if number == head:",
            "if number:",
        ),
        (rules.READS,),
        AWS,
        focus=("query_newest", "ingest_from_memory"),
    ),
)
