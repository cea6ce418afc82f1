"""The state of a version of a store, which is saved in the same write batch as the data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from sleeper.errors import DataError
from sleeper.json_codec import JsonCodec, Member
from sleeper.schema.model import FieldType, StoredType

FORMAT = 1


@dataclass(frozen=True, slots=True)
class StoredField:
    """A field of keys or values, with its type in the table's schema."""

    name: str
    type: StoredType


@dataclass(frozen=True, slots=True)
class Layout:
    """The form of keys and values.

    A key has the `keys` in order. A value has the fields `values`; if that is None, each value is a
    document of its own: a mapping, text, number, or bytes.
    """

    keys: tuple[StoredField, ...]
    values: tuple[StoredField, ...] | None

    def key_types(self) -> list[FieldType]:
        return [each.type for each in self.keys]


@dataclass(frozen=True, slots=True)
class StoreState:
    """The state of one version of a store.

    `input`, `partition` and `extractor` are those of the definition. `positions` has the offset of
    the next unread data for each partition of the input, as text that only the input understands.
    `dataset` names the dataset of a bounded input, and `shape` what makes changes of a table
    comparable to its rows before. `updated_ms` is the time at which the input was
    last seen to have nothing newer. `is_bootstrapped` means that a complete copy was made, and
    `is_incomplete` that data before the first position is missing.
    """

    input: str
    partition: str | None
    extractor: str | None
    layout: Layout | None = None
    positions: Mapping[str, str] = field(default_factory=dict)
    dataset: str | None = None
    shape: str | None = None
    updated_ms: int = 0
    is_bootstrapped: bool = False
    is_incomplete: bool = False
    format: Annotated[int, Member(optional=True)] = FORMAT


_CODEC = JsonCodec(StoreState)


def encode_state(state: StoreState) -> bytes:
    """Returns the state as JSON."""
    return _CODEC.format(state).encode()


def decode_state(content: bytes, where: str) -> StoreState:
    """Returns the state. DataError if it is damaged, or of another version of Sleeper."""
    state = _CODEC.parse(content.decode(errors="replace"), where, DataError)
    if state.format > FORMAT:
        raise DataError(
            f"{where}: format {state.format} is of a newer version of Sleeper (expected {FORMAT})"
        )
    return state
