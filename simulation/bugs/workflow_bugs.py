"""Bugs of the workflows: compaction, collection, queries, workers, and the batcher."""

from simulation.bugs import rules
from simulation.bugs.mutation import Mutation
from simulation.bugs.planted_bug import BOTH, PlantedBug

BUGS = (
    PlantedBug(
        "tombstone-dropped-early",
        "a tombstone stays while it may hide an older row",
        Mutation("sleeper.compaction.run:_find_oldest_beneath", "return 0", "return None"),
        (rules.ROWS,),
        BOTH,
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
    ),
    PlantedBug(
        "filter-excludes-a-key",
        "a key filter never excludes a key that its file holds",
        Mutation(
            "sleeper.datafiles.sidecars.key_filter:_bytes",
            'return struct.pack("<i" if field.type in SHORT_NUMBERS else "<q", value)',
            'return struct.pack("<q", value)',
        ),
        (rules.ROWS,),
        BOTH,
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
    ),
)
