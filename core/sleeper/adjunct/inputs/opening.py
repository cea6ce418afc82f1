"""A request to open the input of a store."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sleeper.adjunct.definition import StoreDefinition
from sleeper.adjunct.inputs.log import StreamName, parse_stream_name
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance

if TYPE_CHECKING:
    from sleeper.adjunct.contents.writers import MakeRowWriter

OpenInstance = Callable[[], Instance]


@dataclass(frozen=True, slots=True)
class InputRequest:
    """The input of a store that is to be opened.

    `instance` opens the instance on first use. `spill` is a folder for temporary files.
    `row_writer` makes what converts rows, by default to the rows' own keys and values.
    """

    definition: StoreDefinition
    instance: OpenInstance
    spill: Path
    row_writer: "MakeRowWriter | None" = None

    @property
    def kind(self) -> str:
        return self.definition.input.partition(":")[0]

    @property
    def rest(self) -> str:
        """The text of the input after its kind."""
        return self.definition.input.partition(":")[2]

    @property
    def make_writer(self) -> "MakeRowWriter":
        from sleeper.adjunct.contents.writers import own_rows

        return self.row_writer or own_rows(self.definition)

    def stream_name(self) -> StreamName:
        """Returns the stream. InvalidRequestError if its options are invalid."""
        return parse_stream_name(self.definition.name, self.kind, self.rest)

    def error(self, problem: str) -> InvalidRequestError:
        """Returns the error of a text that is invalid."""
        name, source = self.definition.name, self.definition.input
        return InvalidRequestError(f"store {name!r}: input {source!r} {problem}")
