"""Files as input: Parquet, CSV or JSON lines in a folder or bucket."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from sleeper.adjunct.contents.writers import MakeRowWriter
from sleeper.adjunct.engines.engine import Writes
from sleeper.adjunct.inputs.dataset import Dataset, DatasetInput, make_dataset, sort_settings
from sleeper.adjunct.inputs.file_listing import FileListing, FilePattern
from sleeper.adjunct.inputs.opening import InputRequest
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.sources.files import RowChecker, SourceFormat, source_format
from sleeper.datafiles.sources.inference import infer_schema
from sleeper.datafiles.sources.parquet import read_parquet
from sleeper.datafiles.sources.text import read_csv, read_json_lines
from sleeper.errors import NotFoundError, SleeperError, StateMovedOnError
from sleeper.schema.model import Schema
from sleeper.storage.bucket_folder import SourceFile

_KEY_OPTION = "?key="
_OPTION = re.compile(r"\?(\w+)=[^/]*$")


class FileInput(DatasetInput):
    """The files of a place. A dataset is named by their digest.

    `keys` names the key fields, none for the first column. The fields are those of the first
    file, and the others must have them too. Of rows with one key, the last counts, in the order of
    the files' paths. A row without a key is an error.
    """

    def __init__(
        self,
        pattern: str,
        keys: Sequence[str],
        make_writer: MakeRowWriter,
        settings: EngineSettings,
    ) -> None:
        self._pattern = FilePattern(pattern)
        self._keys = tuple(keys)
        self._make_writer = make_writer
        self._settings = settings

    def newest(self) -> str | None:
        listing = self._pattern.list()
        return None if listing is None else listing.digest

    @contextmanager
    def open(self, dataset: str) -> Iterator[Dataset]:
        """See the protocol. StateMovedOnError too if a file changes while it is read."""
        listing = self._find()
        if listing is None or listing.digest != dataset:
            raise self._changed()
        try:
            yield self._make_dataset(listing)
        except FileNotFoundError as error:
            raise self._changed() from error
        except SleeperError as error:
            if self._find() != listing:
                raise self._changed() from error
            raise

    def _find(self) -> FileListing | None:
        try:
            return self._pattern.list()
        except NotFoundError:
            return None

    def _make_dataset(self, listing: FileListing) -> Dataset:
        schema = infer_schema(listing.files, self._keys)
        if schema is None:
            return Dataset(listing.digest, iter(()), lambda: None, True, {})
        batches = chain.from_iterable(read_rows(file, schema) for file in listing.files)
        writer = self._make_writer(schema)
        made = make_dataset(listing.digest, batches, schema, writer, self._settings)
        return replace(made, writes=self._check(listing, made.writes))

    def _check(self, listing: FileListing, writes: Iterator[Writes]) -> Iterator[Writes]:
        """Yields the writes, and raises StateMovedOnError at the end if the files changed."""
        yield from writes
        if self._find() != listing:
            raise self._changed()

    def _changed(self) -> StateMovedOnError:
        return StateMovedOnError(f"the files of {self._pattern.text} changed while they were read")


def open_input(request: InputRequest) -> FileInput:
    """Opens the files of `files:PATH` or `files:PATH?key=FIELD,FIELD`."""
    pattern, separator, keys = request.rest.partition(_KEY_OPTION)
    names = [each.strip() for each in keys.split(",")] if separator else []
    option = _OPTION.search(pattern)
    if option is not None:
        # Otherwise the question mark would stand for any character of a file name.
        raise request.error(f"has the unknown option {option[1]!r} (expected key)")
    if not pattern or not all(names):
        raise request.error(
            "has an empty path or key (expected files:PATH or files:PATH?key=FIELD,FIELD)"
        )
    return FileInput(pattern, names, request.make_writer, sort_settings(request.spill))


def read_rows(file: SourceFile, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file as batches of the Arrow schema of `schema`.

    InvalidRequestError names the file, row and field of a value that does not fit.
    """
    checker = RowChecker(schema, str(file), None)
    match source_format(file):
        case SourceFormat.PARQUET:
            return read_parquet(file, checker)
        case SourceFormat.CSV:
            return read_csv(file, checker)
        case SourceFormat.JSON_LINES:
            return read_json_lines(file, checker)
