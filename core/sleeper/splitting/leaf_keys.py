"""The keys of a leaf's files, for a cut on one field or another."""

import logging
from collections.abc import Callable, Sequence

from sleeper.datafiles.sketches import KeySketch, sketches_from_bytes
from sleeper.errors import DataError, NotFoundError
from sleeper.files.data_file import SKETCHES_SUFFIX, DataFile
from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Region
from sleeper.schema.model import Schema
from sleeper.splitting.estimate import FileKeys, LeafEstimate, estimate_leaf, keys_of_sketches

logger = logging.getLogger(__name__)

ReadObject = Callable[[str], bytes]
"""The content of an object, or NotFoundError."""

SampleKeys = Callable[[Schema, DataFile, Region], FileKeys]
"""The keys of the file's rows that lie in the region, from a look into the file itself."""


class LeafKeys:
    """What the largest of a leaf's files tell of its keys.

    Sidecars are read, and files looked into, when they are first needed, and once.
    """

    def __init__(
        self,
        schema: Schema,
        leaf: Partition,
        files: Sequence[DataFile],
        files_max: int,
        read: ReadObject,
        sample: SampleKeys,
    ) -> None:
        by_size = sorted(files, key=lambda f: (-f.rows, f.path))
        self._looked_at, self._others = by_size[:files_max], by_size[files_max:]
        self._schema, self._leaf = schema, leaf
        self._read, self._sample = read, sample
        self._sketches: dict[str, Sequence[KeySketch] | None] = {}
        self._samples: dict[str, FileKeys] = {}
        self._is_warned = False

    def estimate(self, dimension: int) -> LeafEstimate:
        """For a cut on the dimension: by sketches where they tell, else by samples."""
        seen = [(file, self._keys(file, dimension)) for file in self._looked_at]
        return estimate_leaf(self._leaf.region, seen, self._others)

    def sampled(self) -> LeafEstimate:
        """By samples of the files themselves, whatever their sketches say."""
        seen = [(file, self._sampled(file)) for file in self._looked_at]
        return estimate_leaf(self._leaf.region, seen, self._others)

    def _keys(self, file: DataFile, dimension: int) -> FileKeys:
        sketches = self._sketches_of(file)
        if sketches is None or not _tells(file, self._leaf.region, dimension):
            return self._sampled(file)
        return keys_of_sketches(file, self._leaf.region, sketches)

    def _sampled(self, file: DataFile) -> FileKeys:
        if file.path not in self._samples:
            self._samples[file.path] = self._sample(self._schema, file, self._leaf.region)
        return self._samples[file.path]

    def _sketches_of(self, file: DataFile) -> Sequence[KeySketch] | None:
        path = file.path + SKETCHES_SUFFIX
        if file.path not in self._sketches:
            try:
                found = sketches_from_bytes(self._schema, self._read(path), path)
            except (NotFoundError, DataError) as error:
                self._sketches[file.path] = None
                self._warn(error)
            else:
                self._sketches[file.path] = found
        return self._sketches[file.path]

    def _warn(self, error: Exception) -> None:
        if not self._is_warned:
            self._is_warned = True
            logger.warning(
                "keys are sampled from the files where sidecars fail: %s",
                error,
                extra={"partition": self._leaf.id},
            )


def _tells(file: DataFile, region: Region, dimension: int) -> bool:
    """Whether the sketch of the dimension tells of the file's rows in the region.

    It tells of all rows of the file, so all must be in the region as to the other fields.
    """
    bounds = zip(region.ranges, file.smallest_key, file.largest_key, strict=True)
    return all(r.contains_values(a, b) for i, (r, a, b) in enumerate(bounds) if i != dimension)
