"""A program that reads Parquet files as an ingest does, for tests of files that may end it.

It prints a line for each file: its name and its rows, or the error that refused it.
"""

import sys
from pathlib import Path

from sleeper.datafiles.engine.settings import EngineSettings, spill_folder
from sleeper.datafiles.merge.sort import RowSort
from sleeper.datafiles.sources.files import RowChecker
from sleeper.datafiles.sources.parquet import is_scannable, open_parquet, read_parquet
from sleeper.errors import DataError, InvalidRequestError
from sleeper.schema.model import Schema, schema_from_json


def main(schema_json: str, folder: str) -> None:
    schema = schema_from_json(schema_json)
    for path in sorted(Path(folder).glob("*.parquet")):
        print(path.name, end=" ", flush=True)
        try:
            print("rows", count_rows(path, schema), flush=True)
        except InvalidRequestError as error:
            names = "refused" if str(path) in str(error) else "refused without its name"
            print(names, str(error).splitlines()[0], flush=True)


def count_rows(path: Path, schema: Schema) -> int:
    file = open_parquet(path, RowChecker(schema, str(path), None))
    if file is None:
        return 0
    if is_scannable(path, file, schema):
        settings = EngineSettings(path.parent, memory_bytes=64 * 1024**2)
        with spill_folder(settings, "test") as spill:
            unsorted = RowSort(schema, spill, settings)
            unsorted.add_file(path, file.schema_arrow, file.metadata.num_rows, 0)
            try:
                return sum(batch.num_rows for batch in unsorted.batches())
            except DataError as error:
                # The ingest then looks for the file that is to blame.
                raise InvalidRequestError(f"file {path}: {error}") from error
    checker = RowChecker(schema, str(path), None)
    return sum(batch.num_rows for batch in read_parquet(path, checker))


if __name__ == "__main__":
    main(*sys.argv[1:])
