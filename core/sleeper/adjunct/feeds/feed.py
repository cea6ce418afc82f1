"""The port of feeds, and what they have in common: how they begin, load again, and save."""

import logging
import time
from abc import ABC, abstractmethod
from enum import StrEnum

from sleeper.adjunct.definition import EngineType, StoreDefinition, StoreState, loaded_state
from sleeper.adjunct.inputs.dataset import Dataset
from sleeper.adjunct.versions.status import Lag
from sleeper.adjunct.versions.store import Store
from sleeper.errors import StateMovedOnError
from sleeper.retries import Backoff, retry

logger = logging.getLogger(__name__)

# The input may delete what is read.
RESTARTS = Backoff(retries=4)
_SAVE_SECONDS = 30.0


class StartAction(StrEnum):
    """What a store does at its start.

    - CONTINUE: it goes on from the position of the version that was found.
    - LOAD: it is created, or created again, and a complete copy of the input is loaded.
    - FOLLOW: it is created, or created again, without data, and goes on from the saved position.
    """

    CONTINUE = "continue"
    LOAD = "load"
    FOLLOW = "follow"


class Feed(ABC):
    """Moves data from one input into one store. One thread at a time calls it.

    Raises UnavailableError if the input or the disk does not respond: the next call goes on.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._must_load = False
        self._saved_at = 0.0

    @abstractmethod
    def start(self) -> StartAction:
        """Decides what becomes of the version that was found, and creates the store."""

    @abstractmethod
    def update(self) -> int:
        """Writes the data that the input has now. Returns the number of keys that were written."""

    @abstractmethod
    def seal(self) -> None:
        """Ends the dataset that is being built, without its marker.

        InvalidRequestError if the input is not bounded, or its datasets end by themselves.
        """

    @abstractmethod
    def lag(self) -> Lag:
        """Returns how far the store is behind."""

    def rebuild(self) -> None:
        """Makes the next `update` load the store again, beside the version that serves."""
        self._must_load = True

    def close(self) -> None:  # noqa: B027 (an instance is closed by its owner)
        """Closes the input, and discards a version that is being built. Idempotent."""

    def _is_old(self, now_ms: int) -> bool:
        """Returns whether the state should tell again that the input has nothing newer."""
        state = self._store.state
        max_ms = self._store.definition.max_age_seconds * 100
        return state is not None and now_ms - state.updated_ms > max_ms


class LoadingFeed(Feed):
    """A feed that loads all data of its input, and goes on with what follows."""

    @abstractmethod
    def _load_newest(self) -> int:
        """Switches to a version of all data. StateMovedOnError if these change meanwhile."""

    @abstractmethod
    def _follow(self) -> int:
        """Writes what follows the version. StateMovedOnError if it has to be loaded again."""

    def update(self) -> int:
        rows = self._update()
        self._store.sweep()
        return rows

    def _update(self) -> int:
        if not self._must_load:
            try:
                return self._follow()
            except StateMovedOnError as error:
                self._reload(str(error))
        return self._load()

    def _reload(self, reason: str) -> None:
        logger.warning("store %s is loaded again: %s", self._store.definition.name, reason)
        self._must_load = True

    def _load(self) -> int:
        rows = retry(self._load_newest, on=StateMovedOnError, backoff=RESTARTS)
        self._must_load = False
        return rows

    def _save_positions(self, is_due: bool = False) -> None:
        """Saves the positions apart from the data, from time to time."""
        now = time.monotonic()
        if is_due or now >= self._saved_at + _SAVE_SECONDS:
            self._saved_at = now
            self._store.save_positions()


def load_dataset(
    store: Store, dataset: Dataset, name: str | None = None, shape: str | None = None
) -> int:
    """Switches to a version of a dataset. Returns the number of keys.

    `name` is that of a dataset that never changes, and `shape` that of a table.
    """

    def finish() -> StoreState:
        positions = dataset.positions
        layout = dataset.layout()
        return loaded_state(store.definition, store.clock(), layout, positions, name, shape)

    return store.build(dataset.writes, finish, dataset.is_sorted)


def begin(store: Store, input_problem: str | None) -> StartAction:
    """Returns what the store does at its start, and logs why it is created again.

    `input_problem` is why the input cannot go on from the found version; None if it can, or none
    was found.
    """
    definition, state = store.definition, store.state
    problem = store.problem
    if state is not None:
        problem = find_problem(definition, state, store.clock()) or input_problem
    if problem is not None:
        logger.warning("store %s is created again: %s", definition.name, problem)
    # A store in memory is never found.
    if definition.type is EngineType.ROCKSDB and state is not None and problem is None:
        return StartAction.CONTINUE
    action = StartAction.LOAD if definition.bootstrap else StartAction.FOLLOW
    if definition.reset_offset or action is StartAction.LOAD:
        store.forget_positions()
    store.discard()
    return action


def find_problem(definition: StoreDefinition, state: StoreState, now_ms: int) -> str | None:
    """Returns why a version that was found is not valid, apart from its input; None if it is."""
    for what, stored, expected in (
        ("input", state.input, definition.input),
        ("partition", state.partition, definition.partition_text),
        ("extractor", state.extractor, definition.extractor),
        ("time to live", state.ttl_ms, definition.ttl_ms),
    ):
        if stored != expected:
            return f"its {what} was {stored} (expected {expected})"
    age_seconds = (now_ms - state.updated_ms) / 1000
    if age_seconds > definition.max_age_seconds:
        return (
            f"it was last updated {age_seconds:,.0f} s ago (expected at most "
            f"{definition.max_age_seconds:,.0f} s)"
        )
    if definition.bootstrap and (state.is_incomplete or not state.is_bootstrapped):
        return "it lacks history, because it was created without a bootstrap"
    return None
