"""The merge of a compaction: the rows of a partition's files, written to one file."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.key_files import KeyFileCache
from sleeper.datafiles.merge.deletes import DeletedRows, OnDropped, open_deleted
from sleeper.datafiles.merge.request import MergeInput, MergeRequest, Stored, with_hidden
from sleeper.datafiles.merge.steps import ProcessingStep, format_key
from sleeper.datafiles.remote.extracts import Extract, fetch_inputs
from sleeper.datafiles.write.file import FileSettings
from sleeper.datafiles.write.merged import write_merge
from sleeper.datafiles.write.partitioned import WriteTarget
from sleeper.errors import DataError, SleeperError, UnavailableError
from sleeper.files import SIDECAR_SUFFIXES, DataFile
from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Region
from sleeper.schema.model import Schema
from sleeper.statestore.reading.delete_queries import Delete, find_deleted
from sleeper.storage.location import DataRoot


@dataclass(frozen=True, slots=True)
class MergeJob:
    """A merge of the rows of a partition into one file.

    `step` is the table's processing at the time of the assignment. No version that sees the
    output is older, so every version filters the rows that are too old then. `deletes` are those
    at the assignment, up to which the output counts as applied. A merge of latest rows applies no
    processing, or a dropped row would uncover an older one elsewhere. `oldest_beneath` is the
    oldest row outside of the inputs that a tombstone may hide, None if there is none.
    """

    table_id: str
    schema: Schema
    partition: Partition
    inputs: tuple[DataFile, ...]
    run_start_ms: int
    step: ProcessingStep
    deletes: tuple[Delete, ...] = ()
    oldest_beneath: int | None = None

    @property
    def row_count(self) -> int | None:
        """The number of rows of the inputs, None if an input is partly outside the partition."""
        if all(map(self.is_inside, self.inputs)):
            return sum(file.rows for file in self.inputs)
        return None

    def is_inside(self, file: DataFile) -> bool:
        """Returns whether every row of the file is in the partition."""
        return self.partition.region.contains_bounds(file.smallest_key, file.largest_key)

    def regions(self) -> list[tuple[DataFile, tuple[Region, ...] | None]]:
        """Returns each file with the regions of its rows to read, None for every row."""
        region = (self.partition.region,)
        return [(file, None if self.is_inside(file) else region) for file in self.inputs]

    def request(
        self,
        root: DataRoot,
        extracts: Mapping[str, Extract],
        key_files: KeyFileCache,
    ) -> MergeRequest:
        """Returns the merge, which reads extracts in place of their files."""
        inputs = []
        opened: dict[int, DeletedRows] = {}
        for file, regions in self.regions():
            extract = extracts.get(file.path)
            url = root.url_of(file.path) if extract is None else str(extract.path)
            size = file.bytes if extract is None else extract.bytes
            hiding = find_deleted(file, self.deletes)
            first = hiding[0].number if hiding else None
            if first is not None and first not in opened:
                deleted = [(d.region, d.keys) for d in self.deletes if d.number >= first]
                opened[first] = open_deleted(self.schema, deleted, root, key_files)
            rows = None if first is None else opened[first]
            version, number = file.schema_version, file.number
            inputs.append(MergeInput(url, regions, size, rows, version, number))
        return MergeRequest(self.schema, tuple(inputs), steps=self.steps, stored=self.stored)

    @property
    def steps(self) -> tuple[ProcessingStep, ...]:
        """The processing that the merge applies."""
        return () if self.schema.latest is not None else (self.step,)

    @property
    def stored(self) -> Stored | None:
        """The hidden columns of the output. Tombstones that hide no row are dropped."""
        if self.schema.latest is None:
            return None
        numbers = {file.number for file in self.inputs}
        has_numbers = None in numbers or len(numbers) > 1
        return Stored(has_numbers, self.oldest_beneath is not None, self.oldest_beneath or 0)

    @property
    def output_schema(self) -> Schema:
        """The fields of the output."""
        stored = self.stored
        if stored is None:
            return self.schema
        return with_hidden(self.schema, stored.has_numbers, stored.has_tombstones)


def write_output(
    job: MergeJob,
    root: DataRoot,
    engine: EngineSettings,
    settings: FileSettings,
    on_rows: Callable[[int], None] = lambda _: None,
    on_dropped: OnDropped = lambda _: None,
) -> DataFile | None:
    """Writes the merged file, in bounded memory. None if there is no row.

    `on_rows` receives row counts, and stops the merge by raising. `on_dropped` receives the number
    of deleted rows. UnavailableError if the disk fails.
    """
    key_files = KeyFileCache(engine.key_cache_bytes)
    target = WriteTarget(
        root,
        job.table_id,
        job.output_schema,
        (job.partition,),
        job.run_start_ms,
        settings,
        threads=1,
    )
    output: DataFile | None = None
    try:
        with fetch_inputs(root, job.schema, job.regions(), engine.spill_folder) as extracts:
            request = job.request(root, extracts, key_files)
            output = write_merge(request, engine, target, on_rows, on_dropped)
    except BaseException as error:  # an interrupt too
        if output is not None:
            # An input that was verified during the merge is damaged.
            with contextlib.suppress(SleeperError):
                root.delete([output.path + suffix for suffix in ("", *SIDECAR_SUFFIXES)])
        if isinstance(error, OSError):
            raise UnavailableError(
                f"cannot write in partition {job.partition.id}: {error}"
            ) from error
        raise
    return output


def check_rows(merge: MergeJob, rows_read: int, rows_deleted: int) -> None:
    """Checks that no row of whole files was lost. Filters and aggregations prevent the check."""
    expected = merge.row_count
    if expected is None or not all(step.processing.keeps_rows for step in merge.steps):
        return
    if rows_read + rows_deleted != expected:
        deleted = f" and {rows_deleted} deleted or replaced" if rows_deleted else ""
        raise DataError(f"read {rows_read} rows{deleted} (expected {expected})")


def check_keys(merge: MergeJob, output: DataFile | None) -> None:
    """Checks an iterator's keys, because queries would not find rows outside the partition."""
    iterator = merge.step.iterator
    if iterator is not None and output is not None and not merge.is_inside(output):
        raise iterator.failure(
            f"row keys from {format_key(output.smallest_key)} to "
            f"{format_key(output.largest_key)} are outside partition "
            f"{merge.partition.id}"
        )
