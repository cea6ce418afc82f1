"""Bugs of the systems beside tables, and of files on the disk."""

from simulation.bugs import rules
from simulation.bugs.mutation import Mutation
from simulation.bugs.planted_bug import PlantedBug
from simulation.calls import Fault
from simulation.faults import KILLED, LATE, POWER

_PUBLISH = ("publish_iceberg", "ingest_from_memory")
_EXPORTS = ("create_export_queue", "drain_export_queue", "ingest_from_memory")

BUGS = (
    PlantedBug(
        "file-sync-forgotten",
        "the content of a file is synchronised before an entry names it",
        Mutation("sleeper.storage.disk:sync_files", "_sync_all(paths, _sync)", "len(paths)"),
        (rules.EXISTS, rules.ROWS, rules.ERROR),
        focus=("ingest_from_memory", POWER),
    ),
    PlantedBug(
        "folder-sync-forgotten",
        "the name of a file is synchronised before an entry names it",
        Mutation("sleeper.storage.disk:sync_files", "sync_folder(folder)", "folder.exists()"),
        (rules.EXISTS, rules.ROWS, rules.ERROR),
        focus=("ingest_from_memory", POWER),
    ),
    PlantedBug(
        "export-position-before-its-exports",
        "exports and position are stored together",
        Mutation(
            "sleeper.export_queue.capture:_Capture._store_step",
            "added: list[NewItem] = []",
            "added: list[NewItem] = self._add([], self._to) or []",
        ),
        (rules.EXPORTS, rules.NEWEST),
        focus=(*_EXPORTS, Fault.UNAVAILABLE),
    ),
    PlantedBug(
        "export-deleted-before-acknowledgement",
        "an export is deleted after its receiver has it",
        Mutation(
            "sleeper.export_queue.drain:_Drain._export_together",
            "bytes_max = None if len(items) == 1 else _ROWS_BYTES_MAX",
            "bytes_max = [self._settle(*each) for each in items.items()] and None",
        ),
        (rules.EXPORTS, rules.EXPORT_ORDER, rules.NEWEST, rules.ALONE),
        focus=_EXPORTS,
    ),
    PlantedBug(
        "claim-ignored",
        "a bucket that a live worker has claimed is drained by no other",
        Mutation(
            "sleeper.export_queue.local.store:LocalExportStore.claim",
            "if before is not None and before[1] > now and is_alive(before[2]):",
            "if before is not None and before[1] > now and not is_alive(before[2]):",
        ),
        (rules.EXPORTS, rules.EXPORT_ORDER, rules.NEWEST, rules.ALONE),
        focus=(*_EXPORTS, LATE),
    ),
    PlantedBug(
        "stash-complete-before-its-last-file",
        "a task of a stash is done when its files are written",
        Mutation(
            "sleeper.stash.task:TaskWriter.write",
            "results = []",
            "results = [TaskResult() for _ in (record.record_done(version.id, number, "
            "TaskResult()),)]",
        ),
        (rules.STASH,),
        focus=("submit_stash", "ingest_from_memory", KILLED),
    ),
    PlantedBug(
        "exports-out-of-order",
        "the exports of a key come in the order of its changes",
        Mutation(
            "sleeper.export_queue.local.store:LocalExportStore.read",
            '"SELECT id, exports, content FROM items WHERE queue = ? AND bucket = ? ORDER BY id",',
            '"SELECT id, exports, content FROM items WHERE queue = ? AND bucket = ? '
            'ORDER BY id DESC",',
        ),
        (rules.EXPORT_ORDER,),
        focus=_EXPORTS,
    ),
    PlantedBug(
        "claim-not-released",
        "a claim on a bucket ends with its drain",
        Mutation(
            "sleeper.export_queue.drain:_Drain.run",
            "stack.callback(store.release, name, each.bucket, self.owner)",
            "stack.callback(str, self.owner)",
        ),
        (rules.ALONE,),
        focus=_EXPORTS,
    ),
    PlantedBug(
        "success-before-the-last-file",
        "a stash is complete when all its files are",
        Mutation(
            "sleeper.stash.run:tasks_in_threads",
            "deque(threads.map(partial(writer.write, version), numbers), maxlen=0)",
            "threads.map(partial(writer.write, version), numbers)",
        ),
        (rules.STASH,),
        focus=("run_stash", "ingest_from_memory"),
    ),
    PlantedBug(
        "second-decision-counts",
        "a stash that was completed is never cancelled",
        Mutation("sleeper.stash.record:StashRecord.decide", "return first", "return decision"),
        (rules.STASH, rules.LATEST, rules.ERROR),
        focus=("run_stash", "submit_stash", "cancel_running_stash", KILLED),
    ),
    PlantedBug(
        "published-deletes-stay",
        "a delete file is used again while the same rows are hidden",
        Mutation(
            "sleeper.iceberg.manifest_writer:ManifestWriter._hide",
            "if before is not None and has_signature(before.path, signature):",
            "if before is not None:",
        ),
        (rules.PUBLISHED,),
        focus=(*_PUBLISH, "delete_region", "delete_keys"),
        size=100,
    ),
    PlantedBug(
        "published-default-is-null",
        "files without a field that has a default are not published",
        Mutation(
            "sleeper.iceberg.publishable:check_publishable", "_check_defaults(name, state)", "name"
        ),
        (rules.PUBLISHED,),
        focus=(*_PUBLISH, "change_fields"),
        size=80,
    ),
    PlantedBug(
        "published-before-its-manifests",
        "manifests are durable when the metadata names them",
        Mutation(
            "sleeper.iceberg.location:Location.write",
            "self.root.sync(self.unsynced)",
            "len(self.unsynced)",
        ),
        (rules.PUBLISHED, rules.ERROR),
        focus=(*_PUBLISH, POWER),
        size=80,
    ),
)
