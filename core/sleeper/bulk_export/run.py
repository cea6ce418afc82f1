"""Bulk exports: the message (docs/formats.md, "Bulk export messages") and its run."""

import json
import logging
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO

from sleeper.errors import DataError, InvalidRequestError, NotFoundError
from sleeper.jobs.ingest_job import MessageCodec
from sleeper.json_codec import JsonCodec, Member, parse_json
from sleeper.lenient_json import LenientText, OptionalText
from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Region
from sleeper.statestore.store import StateStore
from sleeper.storage.location import DataRoot

logger = logging.getLogger(__name__)

_PLAN = "_plan.json"
_MARKER = "_SUCCESS"

RegionWriter = Callable[[Region, int, BinaryIO], int]
"""Writes a region's rows at a version, sorted, to a file, and returns their number."""


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """The exported version and its leaves, one file each."""

    version: int
    leaves: tuple[Partition, ...]


_PLAN_CODEC = JsonCodec(ExportPlan)


@dataclass(frozen=True, slots=True)
class BulkExportResult:
    """The files below `location`: one per leaf, of one version of the table."""

    export_id: str
    location: str
    version: int
    rows: int
    files: int
    done_before: bool = False


@dataclass(frozen=True, slots=True)
class ExportFolder:
    """The folder `<table id>/<export id>/` below the exports' root."""

    root: DataRoot
    table_id: str
    export_id: str

    @property
    def location(self) -> str:
        """The folder's path or URL."""
        return self.root.url_of(f"{self.table_id}/{self.export_id}")

    def path(self, name: str) -> str:
        """Returns the path of an object in the folder, relative to the root."""
        return f"{self.table_id}/{self.export_id}/{name}"

    def read_json(self, name: str) -> Any:
        """Returns the object's JSON, None if there is no object. DataError if it is not JSON."""
        try:
            text = self.root.read(self.path(name))
        except NotFoundError:
            return None
        return parse_json(text, self.path(name), DataError)


def read_finished_export(folder: ExportFolder) -> BulkExportResult | None:
    """Returns the result of an earlier run of the export; None if no run has finished."""
    raw = folder.read_json(_MARKER)
    if raw is None:
        return None
    counts = (raw["version"], raw["rows"], raw["files"])
    return BulkExportResult(folder.export_id, folder.location, *counts, done_before=True)


def plan_export(folder: ExportFolder, state: StateStore) -> ExportPlan:
    """Returns the plan of the export's first run, and writes it if this run is the first.

    InvalidRequestError if its version is not kept any more.
    """
    with state.reading() as newest:
        plan = ExportPlan(newest.version, tuple(newest.partitions.leaves()))
        oldest = newest.oldest_version
    if not folder.root.create(folder.path(_PLAN), json.dumps(_PLAN_CODEC.to_json(plan)).encode()):
        plan = _PLAN_CODEC.from_json(folder.read_json(_PLAN), "export plan", DataError)
    if plan.version < oldest:
        raise InvalidRequestError(
            f"export {folder.export_id} started at version {plan.version}, which is not kept any "
            f"more (the oldest is {oldest}): export again under another id"
        )
    return plan


def write_export(
    folder: ExportFolder, plan: ExportPlan, write: RegionWriter, threads: int
) -> BulkExportResult:
    """Writes every leaf's file, and then the marker. Replaces existing files by equal ones."""

    def write_leaf(leaf: Partition) -> int:
        with folder.root.replacing(folder.path(f"{leaf.id}.parquet")) as sink:
            return write(leaf.region, plan.version, sink)

    rows = sum(_map_in_threads(write_leaf, plan.leaves, threads))
    marker = {"version": plan.version, "rows": rows, "files": len(plan.leaves)}
    folder.root.create(folder.path(_MARKER), json.dumps(marker).encode())
    logger.info("exported table", extra={"job_id": folder.export_id})
    return BulkExportResult(folder.export_id, folder.location, plan.version, rows, len(plan.leaves))


def _map_in_threads(
    work: Callable[[Partition], int], leaves: Sequence[Partition], threads: int
) -> list[int]:
    executor = ThreadPoolExecutor(threads, "bulk-export")
    try:
        return list(executor.map(work, leaves))
    finally:
        # The first failure cancels the others.
        executor.shutdown(cancel_futures=True)


# The id is also a folder's name.
_EXPORT_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class BulkExportJob:
    """The export of a table, given by `table_name` or `table_id`, under an id.

    InvalidRequestError if the id is not a valid folder name.
    """

    id: Annotated[LenientText, Member("exportId")]
    table_name: OptionalText = None
    table_id: OptionalText = None

    def __post_init__(self) -> None:
        if not _EXPORT_ID.fullmatch(self.id):
            raise InvalidRequestError(
                f"export id {self.id[:200]!r}: expected at most 128 letters, digits, '-', '_' or "
                "'.'"
            )


EXPORT_JOBS = MessageCodec(BulkExportJob, "bulk export message", "exportId")
