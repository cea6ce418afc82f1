"""Runs one bulk export."""

import json
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, BinaryIO

from sleeper.errors import DataError, InvalidRequestError, NotFoundError
from sleeper.json_codec import JsonCodec
from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Region
from sleeper.statestore.store import StateStore
from sleeper.storage.location import DataRoot

logger = logging.getLogger(__name__)

_PLAN = "_plan.json"
_MARKER = "_SUCCESS"

WriteRegion = Callable[[Region, int, BinaryIO], int]
"""Writes a region's rows at a version, sorted, as a file of its own; says how many there were."""


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """The version that is exported, and its leaves, each of which becomes a file."""

    version: int
    leaves: tuple[Partition, ...]


_PLAN_CODEC = JsonCodec(ExportPlan)


@dataclass(frozen=True, slots=True)
class BulkExportResult:
    """What there is now below `location`: one file a leaf, of one version of the table."""

    export_id: str
    location: str
    version: int
    rows: int
    files: int
    done_before: bool = False


@dataclass(frozen=True, slots=True)
class ExportFolder:
    """`<table id>/<export id>/` of where exports go."""

    root: DataRoot
    table_id: str
    export_id: str

    @property
    def location(self) -> str:
        """Its path or URL."""
        return self.root.url_of(f"{self.table_id}/{self.export_id}")

    def path(self, name: str) -> str:
        """Of an object in it, relative to the root."""
        return f"{self.table_id}/{self.export_id}/{name}"

    def read_json(self, name: str) -> Any:
        """The object, None if there is none. DataError if it is no JSON."""
        try:
            return json.loads(self.root.read(self.path(name)))
        except NotFoundError:
            return None
        except ValueError as error:
            raise DataError(f"{self.path(name)} is not JSON: {error}") from error


def finished_export(folder: ExportFolder) -> BulkExportResult | None:
    """What an earlier run of the export did; None if none came to its end."""
    raw = folder.read_json(_MARKER)
    if raw is None:
        return None
    found = (raw["version"], raw["rows"], raw["files"])
    return BulkExportResult(folder.export_id, folder.location, *found, done_before=True)


def plan_export(folder: ExportFolder, state: StateStore) -> ExportPlan:
    """The plan that every run of the export shares: the first one's.

    InvalidRequestError if its version is not kept any more.
    """
    with state.reading() as now:
        plan = ExportPlan(now.version, tuple(now.partitions.leaves()))
        oldest = now.oldest_version
    if not folder.root.create(folder.path(_PLAN), json.dumps(_PLAN_CODEC.to_json(plan)).encode()):
        plan = _PLAN_CODEC.from_json(folder.read_json(_PLAN), "export plan", DataError)
    if plan.version < oldest:
        raise InvalidRequestError(
            f"export {folder.export_id} was begun at version {plan.version}, and the oldest that "
            f"is kept is {oldest}: export again under another id"
        )
    return plan


def write_export(
    folder: ExportFolder, plan: ExportPlan, write: WriteRegion, threads: int
) -> BulkExportResult:
    """Writes every leaf's file, and then the marker.

    A file that is there already is replaced by the same one.
    """

    def write_leaf(leaf: Partition) -> int:
        with folder.root.replacing(folder.path(f"{leaf.id}.parquet")) as sink:
            return write(leaf.region, plan.version, sink)

    rows = sum(_in_threads(write_leaf, plan.leaves, threads))
    done = {"version": plan.version, "rows": rows, "files": len(plan.leaves)}
    folder.root.create(folder.path(_MARKER), json.dumps(done).encode())
    logger.info("table exported", extra={"job_id": folder.export_id})
    return BulkExportResult(folder.export_id, folder.location, plan.version, rows, len(plan.leaves))


def _in_threads(
    work: Callable[[Partition], int], leaves: Sequence[Partition], threads: int
) -> list[int]:
    executor = ThreadPoolExecutor(threads, "bulk-export")
    try:
        return list(executor.map(work, leaves))
    finally:
        # The first failure ends it all.
        executor.shutdown(cancel_futures=True)
