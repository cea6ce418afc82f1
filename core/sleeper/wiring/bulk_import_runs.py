"""Runs of bulk imports that platforms have on hand, as objects of the bulk import bucket.

`jobs/<run id>.json` is the message that the driver reads; `runs/<platform>/<run id>.json` stands
from when the platform accepted the run until its end is known. Both expire with the bucket's
objects, so that nothing is left of what nobody looked after.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from sleeper.bulk_import.platform import PlatformName
from sleeper.datafiles.location import DataRoot
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.properties.deployed import BULK_IMPORT_BUCKET
from sleeper.tables.table_ref import TableId
from sleeper.wiring.instance import Instance

_LOCAL_FOLDER = "bulk_import"


@dataclass(frozen=True, slots=True)
class AcceptedRun:
    """A run of a job that a platform has accepted under its own reference."""

    run_id: str
    table_id: TableId
    job_id: str
    reference: str


class BulkImportRuns:
    """The accepted runs of one platform, and the messages of their jobs."""

    def __init__(self, instance: Instance, platform: PlatformName) -> None:
        self._root = _root(instance)
        self._folder = f"runs/{platform.value}"

    def keep_message(self, run_id: str, body: str) -> str:
        """Where the driver finds the message."""
        path = f"jobs/{run_id}.json"
        self._root.create(path, body.encode())
        return self._root.url_of(path)

    def add(self, run: AcceptedRun) -> None:
        """From now on it is looked after."""
        self._root.create(self._path(run.run_id), json.dumps(asdict(run)).encode())

    def has(self, run_id: str) -> bool:
        """Whether it was accepted and its end is not known yet."""
        try:
            self._root.read(self._path(run_id))
        except NotFoundError:
            return False
        return True

    def all(self) -> Iterator[AcceptedRun]:
        """Those whose end is not known yet, in no order."""
        for found in self._root.list_objects(self._folder):
            try:
                raw = json.loads(self._root.read(found.path))
            except NotFoundError:
                continue
            yield AcceptedRun(**raw)

    def remove(self, run: AcceptedRun) -> None:
        """Its end is known."""
        self._root.delete([self._path(run.run_id)])

    def _path(self, run_id: str) -> str:
        return f"{self._folder}/{run_id}.json"


def _root(instance: Instance) -> DataRoot:
    if instance.is_local:
        return DataRoot(Path(instance.where) / _LOCAL_FOLDER)
    bucket = instance.properties().get(BULK_IMPORT_BUCKET)
    if not bucket:
        raise InvalidRequestError("the instance has no bucket for bulk imports")
    (own,) = instance.root.buckets
    return DataRoot(replace(own, name=bucket, prefix=""))
