"""The port of feeds, and how all of them begin."""

import logging
from dataclasses import dataclass
from typing import Protocol

from sleeper.adjunct.recovery import StartAction, find_problem, plan_start
from sleeper.adjunct.store import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a store is behind its input: `behind` transactions, messages or datasets.

    `newest` is the newest position, or the name of the newest dataset. Both are None if unknown.
    """

    behind: int | None
    newest: str | None


class Feed(Protocol):
    """Moves data from one input into one store. One thread at a time calls it.

    Raises UnavailableError if the input or the disk does not respond: the next call goes on.
    """

    def start(self) -> StartAction:
        """Decides what becomes of the version that was found, and creates the store."""

    def update(self) -> int:
        """Writes the data that the input has now. Returns the number of keys that were written."""

    def rebuild(self) -> None:
        """Makes the next `update` load the store again, beside the version that serves."""

    def seal(self) -> None:
        """Ends the dataset that is being built, without its marker.

        InvalidRequestError if the input is not bounded, or its datasets end by themselves.
        """

    def lag(self) -> Lag:
        """Returns how far the store is behind."""

    def close(self) -> None:
        """Closes the input, and discards a version that is being built. Idempotent."""


def begin(store: Store, input_problem: str | None) -> StartAction:
    """Returns what the store does at its start, and logs why it is created again.

    `input_problem` is why the input cannot go on from the found version; None if it can, or none
    was found.
    """
    definition, state = store.definition, store.state
    problem = store.problem
    if state is not None:
        problem = find_problem(definition, state, store.clock()) or input_problem
    action = plan_start(definition, state is not None, problem)
    if problem is not None:
        logger.warning("store %s is created again: %s", definition.name, problem)
    if action is not StartAction.CONTINUE:
        if definition.reset_offset or action is StartAction.LOAD:
            store.forget_positions()
        store.discard()
    return action
