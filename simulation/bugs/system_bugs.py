"""Bugs of the systems beside tables, and of files on the disk."""

from simulation.bugs import rules
from simulation.bugs.mutation import Mutation
from simulation.bugs.planted_bug import PlantedBug

BUGS = (
    PlantedBug(
        "file-sync-forgotten",
        "the content of a file is synchronised before an entry names it",
        Mutation("sleeper.storage.disk:sync_files", "_sync_all(paths, _sync)", "len(paths)"),
        (rules.EXISTS, rules.ROWS, rules.ERROR),
    ),
    PlantedBug(
        "folder-sync-forgotten",
        "the name of a file is synchronised before an entry names it",
        Mutation("sleeper.storage.disk:sync_files", "sync_folder(folder)", "folder.exists()"),
        (rules.EXISTS, rules.ROWS, rules.ERROR),
    ),
    PlantedBug(
        "export-position-before-its-exports",
        "exports and position are stored together",
        Mutation(
            "sleeper.export_queue.capture:_Capture._store_step",
            "added: list[NewItem] = []",
            "added: list[NewItem] = self._add([], self._to) or []",
        ),
        (rules.EXPORTS,),
    ),
    PlantedBug(
        "export-deleted-before-acknowledgement",
        "an export is deleted after its receiver has it",
        Mutation(
            "sleeper.export_queue.drain:_Drain._export_together",
            "bytes_max = None if len(items) == 1 else _ROWS_BYTES_MAX",
            "bytes_max = [self._settle(*each) for each in items.items()] and None",
        ),
        (rules.EXPORTS, rules.EXPORT_ORDER),
    ),
    PlantedBug(
        "claim-ignored",
        "a bucket that a live worker has claimed is drained by no other",
        Mutation(
            "sleeper.export_queue.local.store:LocalExportStore.claim",
            "if before is not None and before[1] > now and is_alive(before[2]):",
            "if before is not None and before[1] > now and not is_alive(before[2]):",
        ),
        (rules.EXPORTS, rules.EXPORT_ORDER),
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
    ),
)
