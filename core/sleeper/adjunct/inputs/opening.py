"""The input of datasets, by the text that names it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sleeper.adjunct.contents.rows import KeyedRows, MakeRowWriter
from sleeper.adjunct.definition import StoreDefinition
from sleeper.adjunct.inputs.dataset import DatasetInput
from sleeper.adjunct.inputs.files import FileInput
from sleeper.adjunct.inputs.stash import StashInput
from sleeper.adjunct.inputs.table import TableInput
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance

_KEY_OPTION = "?key="
_OPTION = re.compile(r"\?(\w+)=[^/]*$")
_SORT_BYTES = 256 * 1024**2

OpenInstance = Callable[[], Instance]


def open_dataset_input(
    definition: StoreDefinition,
    instance: OpenInstance,
    spill: Path,
    make_writer: MakeRowWriter | None = None,
) -> DatasetInput | None:
    """Returns the input of a store, None if it has no datasets.

    A table's dataset is the table at a transaction number. `spill` is a folder for temporary files.
    `make_writer` makes what converts rows, by default to the rows' own keys and values.
    """
    kind, _, rest = definition.input.partition(":")
    opener = _INPUTS.get(kind) if rest else None
    if opener is None:
        return None
    if make_writer is None:
        make_writer = partial(KeyedRows, definition.name, partition=definition.partition)
    return opener(_Source(definition, instance, rest, spill, make_writer))


@dataclass(frozen=True, slots=True)
class _Source:
    """`rest` is the text of the input after its kind."""

    definition: StoreDefinition
    instance: OpenInstance
    rest: str
    spill: Path
    make_writer: MakeRowWriter

    @property
    def sort_settings(self) -> EngineSettings:
        return EngineSettings(self.spill, memory_bytes=_SORT_BYTES)


def _open_table(source: _Source) -> TableInput:
    owner = f"adjunct store {source.definition.name}"
    return TableInput(source.instance(), source.rest, source.make_writer, owner)


def _open_stash(source: _Source) -> StashInput:
    definition = source.definition
    destination, _, table = source.rest.rpartition("#")
    if not destination or not table:
        raise InvalidRequestError(
            f"store {definition.name!r}: input {definition.input!r} names no table "
            "(expected stash:DESTINATION#TABLE)"
        )
    return StashInput(destination, table, source.make_writer, source.sort_settings)


def _open_files(source: _Source) -> FileInput:
    definition = source.definition
    place, separator, keys = source.rest.partition(_KEY_OPTION)
    names = [each.strip() for each in keys.split(",")] if separator else []
    option = _OPTION.search(place)
    if option is not None:
        # Otherwise the question mark would stand for any character of a file name.
        raise InvalidRequestError(
            f"store {definition.name!r}: input {definition.input!r} has the unknown option "
            f"{option[1]!r} (expected key)"
        )
    if not place or not all(names):
        raise InvalidRequestError(
            f"store {definition.name!r}: input {definition.input!r} has an empty path "
            "or key (expected files:PATH or files:PATH?key=FIELD,FIELD)"
        )
    return FileInput(place, names, source.make_writer, source.sort_settings)


_INPUTS: dict[str, Callable[[_Source], DatasetInput]] = {
    "table": _open_table,
    "stash": _open_stash,
    "files": _open_files,
}
