"""Bugs of the workflows: compaction, collection, queries, workers, and the batcher."""

from simulation.bugs import rules
from simulation.bugs.mutation import Mutation
from simulation.bugs.planted_bug import BOTH, PlantedBug
from simulation.calls import Fault
from simulation.faults import KILLED, LATE

BUGS = (
    PlantedBug(
        "tombstone-dropped-early",
        "a tombstone stays while it may hide an older row",
        Mutation(
            "sleeper.compaction.run:_plan_merge",
            "job.table_id, state.schema, partition, inputs, start_ms, step, deletes, oldest",
            "job.table_id, state.schema, partition, inputs, start_ms, step, deletes, None",
        ),
        (rules.ROWS,),
        BOTH,
        focus=("create_compactions", "ingest_from_memory"),
    ),
    PlantedBug(
        "delete-hides-later-rows",
        "a delete hides the rows that were committed before it, and no others",
        Mutation(
            "sleeper.statestore.reading.delete_queries:find_deleted",
            "return tuple(d for d in deletes if d.number > applied and "
            "d.region.overlaps_bounds(low, high))",
            "return tuple(d for d in deletes if d.region.overlaps_bounds(low, high))",
        ),
        (rules.ROWS,),
        BOTH,
        focus=("delete_region", "delete_keys"),
    ),
    PlantedBug(
        "message-deleted-before-its-commit",
        "a worker deletes its message only after the commit",
        Mutation(
            "sleeper.workers.worker:Worker._handle",
            "failure: Exception | None = None",
            "failure = queue.delete(message.receipt)",
        ),
        (rules.ACCEPTED,),
        focus=("ingest_by_message", KILLED),
    ),
    PlantedBug(
        "batch-not-recorded",
        "a job of the batcher is recorded before it is sent",
        Mutation(
            "sleeper.ingest_batcher.plan:create_batches",
            "requests.assign(job_id, batch)",
            "len(batch)",
        ),
        (rules.ONCE,),
        BOTH,
        focus=("ingest_by_batcher", "create_batches"),
    ),
    PlantedBug(
        "filter-excludes-a-key",
        "a key filter never excludes a key that its file holds",
        Mutation(
            "sleeper.datafiles.sidecars.key_filter:_may_hold",
            "masks = _ONE << ((hashes.astype(np.uint32)[:, None] * SALTS) >> _TO_BIT)",
            "masks = _ONE << (((hashes >> _HALF).astype(np.uint32)[:, None] * SALTS) >> _TO_BIT)",
        ),
        (rules.ROWS, rules.READS),
        BOTH,
        ("look_up_keys", "query_newest"),
    ),
    PlantedBug(
        "orphans-of-running-jobs-collected",
        "the orphan collector takes only files of runs older than the orphan age",
        Mutation(
            "sleeper.garbage_collection.orphans:collect_orphans",
            "if _is_collectable_kind(table_id, each.path) and _began_ms(each) < oldest_kept_ms",
            "if _is_collectable_kind(table_id, each.path) and _began_ms(each) < now_ms",
        ),
        (rules.EXISTS, rules.ROWS),
        BOTH,
        focus=("collect_orphans", "ingest_from_files", LATE),
    ),
    PlantedBug(
        "collection-delay-ignored",
        "a file without references is collected only after the delay",
        Mutation(
            "sleeper.garbage_collection.collection:_Collector._find_collectable",
            "before_ms, number = now_ms - self.delay_ms, claims.horizon_max",
            "before_ms, number = now_ms, claims.horizon_max",
        ),
        (rules.DELAY,),
        BOTH,
        focus=("collect", "restore_version", "create_compactions"),
    ),
    PlantedBug(
        "pins-of-clones-dropped",
        "a file that a clone shares is not collected",
        Mutation(
            "sleeper.garbage_collection.clones:drop_stale_pins",
            "if _is_deleted(instance, TableId(clone)):",
            "if files:",
        ),
        (rules.EXISTS, rules.ROWS),
        BOTH,
        focus=("clone", "create_compactions", "collect"),
    ),
    PlantedBug(
        "key-bounds-exclude-the-last-key",
        "key bounds exclude only files that cannot hold a key",
        Mutation(
            "sleeper.partitions.region:Range.overlaps_values",
            "return not precedes(largest, self.min) and (",
            "return precedes(self.min, largest) and (",
        ),
        (rules.ROWS, rules.READS),
        BOTH,
        focus=("look_up_keys", "query_newest"),
    ),
    PlantedBug(
        "cursor-before-the-changes",
        "the position of a follower is recorded after its changes were taken",
        Mutation(
            "sleeper.query.changes.reader:ChangeReader._read_step",
            "self._check_schema(planned)",
            "self._claim and self._claim.advance(planned.number)",
        ),
        (rules.COPY,),
        BOTH,
        focus=("follow_changes", "ingest_from_memory"),
    ),
    PlantedBug(
        "visibility-not-renewed",
        "the message of a job that runs is not delivered again",
        Mutation(
            "sleeper.workers.worker:visibility_renewal",
            "lambda: queue.extend(message.receipt, visibility_seconds),",
            "lambda: None,",
        ),
        (rules.ALONE,),
        focus=("ingest_by_message", "create_compactions", LATE),
    ),
    PlantedBug(
        "job-id-reused",
        "the id of a compaction job is used once",
        Mutation(
            "sleeper.statestore.transactions.compaction_jobs:AssignFiles.validate",
            "if job.job_id in ids or fold.applied(job.job_id, JOB_KIND):",
            "if job.job_id in ids:",
        ),
        (rules.ONCE, rules.ERROR),
        BOTH,
        focus=("reuse_job_id", "create_compactions", "ingest_from_memory"),
        size=60,
    ),
    PlantedBug(
        "dead-letter-threshold-off-by-one",
        "a message becomes a dead letter at its last receive",
        Mutation(
            "sleeper.local.queue:bury",
            '" WHERE queue = :queue AND died_ms IS NULL AND due_ms <= :now AND receives >= :max",',
            '" WHERE queue = :queue AND died_ms IS NULL AND due_ms <= :now AND receives > :max",',
        ),
        (rules.DEAD,),
        focus=("create_compactions", "ingest_by_message", KILLED),
    ),
    PlantedBug(
        "batcher-forgets-a-file",
        "a job of the batcher whose answer was lost is sent again",
        Mutation(
            "sleeper.ingest_batcher.plan:create_batches",
            "sent = [_send(assigned, requests, send) for assigned in _whole_jobs(waiting)]",
            "sent = [_send(assigned, requests, send) for assigned in _whole_jobs([])]",
        ),
        (rules.FILES,),
        BOTH,
        focus=("ingest_by_batcher", "create_batches", Fault.LOST),
    ),
)
