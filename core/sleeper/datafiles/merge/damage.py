"""Which data file is to blame when a merge fails: the engine does not say."""

from collections.abc import Iterable

from sleeper.datafiles.engine.session import EngineSettings
from sleeper.datafiles.merge.plan import MergeInput, MergeRequest, merge
from sleeper.datafiles.sidecars.file_check import damage_of_bytes
from sleeper.errors import DataError, StateMovedOnError
from sleeper.files.data_file import DataFile
from sleeper.schema.model import Schema
from sleeper.storage.location import DataRoot


def find_damage(
    schema: Schema, files: Iterable[DataFile], root: DataRoot, settings: EngineSettings
) -> DataError | None:
    """The error that names the first file that cannot be read or has not its rows.

    Each is held against its checksum, then read by itself; None if all of them are whole.
    """
    for file in files:
        url = root.url_of(file.path)
        try:
            damage = damage_of_bytes(root, file.path)
            if damage is not None:
                return damage
            batches = merge(MergeRequest(schema, (MergeInput(url, bytes=file.bytes),)), settings)
            rows = sum(batch.num_rows for batch in batches)
        except (DataError, StateMovedOnError) as cause:
            return DataError(f"data file {file.path}: {cause}")
        if rows != file.rows:
            return DataError(f"data file {file.path} holds {rows} rows: expected {file.rows}")
    return None
