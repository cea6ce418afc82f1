"""Deletes old stashes of a destination (docs/stash-schedules.md, "Retention").

The age of a complete stash counts from the completion of the one that replaced it, because until
then it was the latest, and a reader that locked it may read it for as long as stashes are kept.
The age of an incomplete one counts from its start, or its newest file.

The record of this instance is deleted before the files, so that no process continues the stash.
Of the files, `_SUCCESS` is deleted first, so nobody takes the rest for a complete stash, and
`_TABLES` last. A stash whose deletion was interrupted is an old incomplete one.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice, pairwise

from sleeper.clock import parse_duration
from sleeper.errors import DataError, InvalidRequestError, NotFoundError
from sleeper.instance import Instance
from sleeper.stash.destination import StashDestination, StashRoot, open_to_read, parse_destination
from sleeper.stash.finish import fail_stash
from sleeper.stash.layout import SUCCESS, TABLES, is_stash_file, root_time_ms
from sleeper.stash.record import StashRecord
from sleeper.stash.record_index import StashRecords, destination_digest
from sleeper.stash.start import is_dead

logger = logging.getLogger(__name__)
_DAY_MS = 86_400_000
_DELETED_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class PrunedStash:
    """A stash that was deleted, or that a dry run would delete, and the time its age counts from.

    `files` and `bytes` are without `_SUCCESS`. `other_files`, which no stash writes, are kept.
    """

    name: str
    is_complete: bool
    old_since_ms: int
    files: int
    bytes: int
    other_files: int


@dataclass(frozen=True, slots=True)
class PruneReport:
    """The deleted stashes of a destination, oldest first, and errors as text."""

    destination: str
    is_dry_run: bool
    pruned: tuple[PrunedStash, ...]
    problems: tuple[str, ...]


def parse_age(text: str) -> int:
    """Returns the milliseconds of an age such as 7d. InvalidRequestError if it is invalid."""
    age_ms = parse_duration(text)
    if age_ms is None:
        raise InvalidRequestError(f"age {text!r} is invalid (expected a duration such as 7d)")
    return age_ms


def prune_stashes(
    instance: Instance, destination: str, age_ms: int, is_dry_run: bool = False
) -> PruneReport:
    """Deletes the stashes of a destination that are older than the age. Can be repeated.

    Complete ones are deleted if their replacement was completed before then. The one that was
    completed last and the one that `_LATEST` names stay. Incomplete ones are deleted if they were
    started and written to before then, and at least a day ago, and this instance does not make
    them. One whose `_SUCCESS` is damaged stays, and so do those that EmoDB made, and all other
    files. NotFoundError if the destination is a folder that does not exist.
    """
    opened = open_to_read(destination, instance.storage.root)
    records = _Records(instance, destination_digest(parse_destination(destination)))
    now_ms = instance.clock()
    abandoned_ms = now_ms - max(age_ms, _DAY_MS)
    all_roots = opened.roots()
    problems = [
        f"stash {r.name} of {opened.name} is kept: {r.damage}" for r in all_roots if r.damage
    ]
    roots = [root for root in all_roots if not root.damage]
    kept = _names_of_latest(opened, roots) | records.live()
    if not is_dry_run and not problems:
        _repair_latest(opened, roots)
    old = chain(
        _replaced_before(roots, now_ms - age_ms), _abandoned_before(opened, roots, abandoned_ms)
    )
    pruned = []
    for root, since_ms in sorted(old, key=lambda each: each[0].name):
        if root.name in kept or _is_of_emodb(opened, root):
            continue
        if not is_dry_run:
            records.forget(root.name)
        deleted = _delete(opened, root, since_ms, is_dry_run)
        if deleted is not None:
            pruned.append(deleted)
    if not is_dry_run:
        for each in pruned:
            logger.info("deleted stash %s of %s", each.name, destination)
        records.forget_lost(opened, abandoned_ms)
    return PruneReport(destination, is_dry_run, tuple(pruned), tuple(problems))


@dataclass(frozen=True, slots=True)
class _Records:
    """The records of this instance at a destination."""

    instance: Instance
    digest: str

    def live(self) -> set[str]:
        """Returns the names of the stashes that a process or workers make."""
        running = StashRecords(self.instance.storage.root).running()
        ours = (each for each in running if each.digest == self.digest)
        return {each.name for each in ours if not is_dead(each, self.instance.clock)}

    def forget(self, name: str) -> None:
        """Deletes the record of a stash that is deleted. Releases the holds of a dead one."""
        record = StashRecord(self.instance.storage.root, self.digest, name)
        if record.is_running() and record.decision() is None:
            fail_stash(self.instance, record, "it was interrupted, and pruned")
        record.delete()

    def forget_lost(self, opened: StashDestination, time_ms: int) -> None:
        """Deletes the records of stashes before a time whose files are gone."""
        records = StashRecords(self.instance.storage.root).at(self.digest)
        # After the records: one that starts meanwhile is not among them.
        kept = self.live().union(opened.root.list_folders(""))
        for record in records:
            if record.name not in kept and root_time_ms(record.name) < time_ms:
                self.forget(record.name)


def _names_of_latest(opened: StashDestination, roots: list[StashRoot]) -> set[str]:
    names = {root.name for root, _ in _by_completion(roots)[-1:]}
    with suppress(NotFoundError):
        names.add(opened.latest())
    return names


def _repair_latest(opened: StashDestination, roots: list[StashRoot]) -> None:
    """Makes `_LATEST` name a complete root again, if a program deleted the one that it names."""
    complete = {root.name for root, _ in _by_completion(roots)}
    with suppress(NotFoundError):
        if opened.latest() in complete:
            return
    if complete:
        opened.record_latest()


def _by_completion(roots: Iterable[StashRoot]) -> list[tuple[StashRoot, int]]:
    complete = [(root, root.success.completed_ms) for root in roots if root.success is not None]
    return sorted(complete, key=lambda each: (each[1], each[0].name))


def _replaced_before(roots: list[StashRoot], time_ms: int) -> Iterator[tuple[StashRoot, int]]:
    for (root, _), (_, replaced_ms) in pairwise(_by_completion(roots)):
        if replaced_ms < time_ms:
            yield root, replaced_ms


def _abandoned_before(
    opened: StashDestination, roots: list[StashRoot], time_ms: int
) -> Iterator[tuple[StashRoot, int]]:
    for root in roots:
        if root.success is None and root_time_ms(root.name) < time_ms:
            written = (each.modified_ms for each in opened.root.list_objects(root.name))
            since_ms = max(chain([root_time_ms(root.name)], written))
            if since_ms < time_ms:
                yield root, since_ms


def _is_of_emodb(opened: StashDestination, root: StashRoot) -> bool:
    """Returns whether EmoDB made a complete stash, which would lose its `_SUCCESS`."""
    if root.success is None:
        return False
    try:
        opened.root.read(f"{root.name}/{TABLES}")
    except NotFoundError:
        with suppress(DataError):  # EmoDB made it, and compressed it by another codec
            return bool(opened.emo_tables(root.name))
        return True
    return False


def _delete(
    opened: StashDestination, root: StashRoot, since_ms: int, is_dry_run: bool
) -> PrunedStash | None:
    """Deletes the files of a stash. Returns None if there is nothing to delete."""
    name, start = root.name, len(root.name) + 1
    if not is_dry_run:
        opened.root.delete([f"{name}/{SUCCESS}"])
    files = size = others = 0
    objects = opened.root.list_objects(name)
    while some := list(islice(objects, _DELETED_AT_ONCE)):
        ours = [each for each in some if is_stash_file(each.path[start:])]
        others += len(some) - len(ours)
        counted = [each for each in ours if each.path[start:] != SUCCESS]
        files += len(counted)
        size += sum(each.bytes for each in counted)
        if not is_dry_run:
            opened.root.delete([each.path for each in ours if each.path[start:] != TABLES])
    if not is_dry_run:
        opened.root.delete([f"{name}/{TABLES}"])
        opened.root.remove_empty_folders(name)
    if root.success is None and not files:
        return None  # an empty folder, or one with files of others that an earlier prune left
    return PrunedStash(name, root.success is not None, since_ms, files, size, others)
