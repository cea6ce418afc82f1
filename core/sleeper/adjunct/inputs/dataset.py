"""The port of inputs that have complete datasets: tables at a version, stashes, files."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from sleeper.adjunct.contents.writes import Writes
from sleeper.adjunct.store_state import Layout


@dataclass(frozen=True, slots=True)
class Dataset:
    """All keys and values of one dataset.

    `layout` returns their form; None until `writes` was read, if it follows from the data. If
    `is_sorted`, the keys are in strictly ascending order. `positions` are those after the dataset.
    """

    name: str
    writes: Iterator[Writes]
    layout: "LayoutSource"
    is_sorted: bool
    positions: dict[str, str]


class LayoutSource(Protocol):
    """The form of keys and values."""

    def __call__(self) -> Layout | None: ...


class DatasetInput(Protocol):
    """An input of datasets, each of which replaces the one before.

    Raises UnavailableError if a service does not respond, NotFoundError if the input does not
    exist, and DataError or InvalidRequestError for data that cannot be read or has no valid keys.
    """

    def newest(self) -> str | None:
        """Returns the name of the newest complete dataset, None if there is none."""

    def is_current(self, positions: Mapping[str, str]) -> bool:
        """Returns whether the positions are of this input, and not of a former one of its name."""

    def open(self, dataset: str) -> AbstractContextManager[Dataset]:
        """Opens a dataset. StateMovedOnError if it does not exist any more: ask for the newest."""
