"""The records of all stashes of an instance, by their names and destinations."""

import hashlib
from dataclasses import dataclass

from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.stash.layout import is_root_name
from sleeper.stash.record import RUNNING_FOLDER, STASHES_FOLDER, StashRecord, StashRequest
from sleeper.storage.location import DataRoot


@dataclass(frozen=True, slots=True)
class StashRecords:
    """The records of all stashes of an instance, by its storage."""

    own: DataRoot

    def create(self, name: str, request: StashRequest) -> StashRecord | None:
        """Claims the name of a root. Returns None if another stash of this instance has it."""
        record = self.locate(request.destination, name)
        if record.is_claimed():
            return None
        # A name that was claimed without this object would never be looked at.
        self.own.create(record.running_path, b"")
        return record if record.claim(request) else None

    def locate(self, destination: str, name: str) -> StashRecord:
        """Returns the record of that name at a parsed destination. It may not exist."""
        return StashRecord(self.own, destination_digest(destination), name)

    def find(self, digest: str | None, name: str | None) -> StashRecord:
        """Returns a stash by its name, by default the only one that has not ended.

        `digest` is that of its destination; None is any. NotFoundError if there is none,
        InvalidRequestError if there are several.
        """
        records = [
            each
            for each in (self.running() if name is None else self._named(name))
            if digest in (None, each.digest)
        ]
        if not records:
            what = f"stash {name}" if name else "stash that has not ended"
            raise NotFoundError(f"the instance has no {what}")
        if len(records) > 1:
            names = ", ".join(f"{each.name} of {each.request.destination}" for each in records)
            raise InvalidRequestError(f"there are several stashes: {names} (name one of them)")
        return records[0]

    def running(self) -> list[StashRecord]:
        """Returns the stashes that have not ended, oldest first."""
        paths = (each.path for each in self.own.list_objects(RUNNING_FOLDER))
        parts = (path.rpartition("/")[2].partition("~") for path in paths)
        records = [
            StashRecord(self.own, digest, name) for digest, _, name in parts if is_root_name(name)
        ]
        return sorted(
            filter(StashRecord.is_claimed, records), key=lambda each: (each.name, each.digest)
        )

    def _named(self, name: str) -> list[StashRecord]:
        digests = self.own.list_folders(STASHES_FOLDER)
        return [r for r in (StashRecord(self.own, d, name) for d in digests) if r.is_claimed()]

    def at(self, digest: str, after: str = "") -> list[StashRecord]:
        """Returns the stashes of a destination whose names follow `after`, oldest first."""
        folders = self.own.list_folders(f"{STASHES_FOLDER}/{digest}")
        names = sorted(name for name in folders if name > after)
        records = [StashRecord(self.own, digest, name) for name in names]
        return list(filter(StashRecord.is_claimed, records))

    def all(self) -> list[StashRecord]:
        """Returns the stashes of all destinations, newest first."""
        own = self.own
        records = [
            StashRecord(own, digest, name)
            for digest in own.list_folders(STASHES_FOLDER)
            for name in own.list_folders(f"{STASHES_FOLDER}/{digest}")
        ]
        return sorted(
            filter(StashRecord.is_claimed, records), key=lambda each: each.name, reverse=True
        )


def destination_digest(destination: str) -> str:
    """Returns the digest of a destination as `parse_destination` returns it."""
    return hashlib.sha256(destination.encode()).hexdigest()[:16]
